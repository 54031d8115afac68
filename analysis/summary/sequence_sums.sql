-- grain: one sequence of one step, over its usable tokens. The one scan of the tokens for whatever adds up: groups are
-- made from it. Terms of what is not logged are null, and sums leave them out. `deviations`: rho - 1 of each policy, which
-- several sums have in common. `sums`: those of the catalogue.
create or replace temp table sequence_sums as
with
deviations as (
    select *, $deviations from usable
)
select
    step, group_id, seq_id,
    count(*) as n_tokens,
    count_if(grouped) as n_grouped,
    $sums
from deviations
group by step, group_id, seq_id;
