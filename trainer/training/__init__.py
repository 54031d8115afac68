"""One update, and the run around it: logged, stopped and taken up again."""
