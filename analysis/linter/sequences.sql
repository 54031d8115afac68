-- grain: one sequence that its rows, or the two tables, contradict. Null: there is none in that table.
with
rows as (
    select
        step, seq_id,
        count(*) as n_rows,
        count(distinct position) as n_positions,
        min(position) as first_position,
        max(position) as last_position,
        min(group_id) as lowest_group,
        max(group_id) as highest_group
    from token
    group by step, seq_id
),
listed as (
    select
        step, seq_id,
        count(*) as n_listed,
        any_value(group_id) as group_id,
        any_value(n_tokens) as n_tokens,
        any_value(dropped) as dropped
    from sequence
    group by step, seq_id
)
select *
from rows
full join listed using (step, seq_id)
where n_rows > n_positions
    or n_listed > 1
    or first_position > 0
    or last_position - first_position + 1 > n_positions
    or lowest_group <> highest_group
    or lowest_group <> group_id
    or n_rows is null
    or n_listed is null
    or n_tokens is distinct from n_rows
order by step, seq_id
