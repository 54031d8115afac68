-- grain: one response that has a part of a number: its share of the whole, and the token with the largest part. Parts
-- are taken relative to the largest: shares are ratios, so the scale cancels. `rows`: step, seq_id, position, and `size`,
-- the logarithm of a part.
with
sized as (
    select *, max(size) over () as peak from ($rows) where size is not null and not isnan(size)
),
scaled as (
    select *, case
        when peak = '-inf'::double then 0
        when isinf(peak) then (size = peak)::integer
        else exp(size - peak) end as part
    from sized
),
summed as (
    select
        step, seq_id, sum(part) as part, max(part) as largest, any_value(peak) as peak,
        -- the largest and, among equals, the first: the same whatever the order of the rows
        min(position) filter (part = top) as position
    from (select *, max(part) over (partition by step, seq_id) as top from scaled)
    group by step, seq_id
)
select
    step, seq_id, position, peak,
    part / nullif(sum(part) over (), 0) as share,
    largest / nullif(sum(part) over (), 0) as token_share
from summed
order by part desc, step, seq_id
