"""What differs between runs, and in which parts of their algorithms settings differ."""

from collections.abc import Iterable, Sequence

import pandas as pd

from ratioscope.analysis.compare.configuration import UNSET, configuration_of, differing_keys, flatten_settings
from ratioscope.analysis.compare.grouping import Member, Setting


def differences(members: Iterable[Member]) -> pd.DataFrame:
    """One row a differing key, one column a run; "-" where a run does not set it."""
    flat = {member.run_id: configuration_of(member.run.manifest) for member in members}
    keys = differing_keys(flat.values())
    return pd.DataFrame(
        {run_id: [str(values.get(key, UNSET)) for key in keys] for run_id, values in flat.items()},
        index=pd.Index(keys),
    )


def component_differences(settings: Sequence[Setting]) -> pd.DataFrame:
    """The algorithms' parts and parameters that are not all alike: one row a component, one column a setting.

    Parts come first, in the order of the manifest (advantage, selection, ..., step); "-" where an algorithm has none.
    """
    algorithms = [setting.members[0].run.manifest.algorithm for setting in settings]
    columns = [dict(flatten_settings({key: algorithm.get(key, {}) for key in _COMPONENTS})) for algorithm in algorithms]
    names = sorted(dict.fromkeys(name for column in columns for name in column), key=_section)
    table = {name: [str(column.get(name, UNSET)) for column in columns] for name in names}
    table = {name: row for name, row in table.items() if len(set(row)) > 1}
    index = pd.Index([name.partition(".")[2] for name in table], name="component")
    return pd.DataFrame([*table.values()], index=index, columns=[setting.label for setting in settings])


_COMPONENTS = ("parts", "parameters")


def _section(name: str) -> int:
    return _COMPONENTS.index(name.partition(".")[0])
