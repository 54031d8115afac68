"""Where runs lie: folders of this machine and object storage by URL, behind the same `Path`."""
