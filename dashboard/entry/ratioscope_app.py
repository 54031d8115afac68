"""The script that Streamlit runs for every view.

It is alone in its folder because Streamlit puts that folder first on the import path: beside `app.py`, this package's
`state.py`, `theme.py` and `report/` would become modules of those names.
"""

from ratioscope.dashboard.app import main

main()
