"""The gradient of every algorithm, from its source's formula."""

from tests.making.batches import Groups
from tests.oracles import field_formulas, formulas

FORMULAS = formulas.FORMULAS | field_formulas.FORMULAS
_SHARES = formulas.SHARES | field_formulas.SHARES


def expected_gradient(name: str, groups: Groups, p: formulas.Parameters) -> list[float]:
    """The coefficient of every token of the responses that are kept."""
    batch = [y for group in groups for y in group if y.kept]
    for y in batch:
        y.batch = batch
    share = _SHARES.get(name, formulas.of_tokens)
    return [FORMULAS[name](y, t, p) * share(batch, y) for y in batch for t in range(len(y))]
