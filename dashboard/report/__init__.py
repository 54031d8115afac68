"""Reports: `build` puts one together from `sections`, `write` puts it into a file.

report = build.run_report(open_folder("runs/mine"))
write.write(report, Path("mine.html"))
"""
