-- Rewards and lengths of responses by step and level of a feature: sums of what they are, and of what they are off those
-- that they are compared with. A response is compared with those of its group that are drawn alike; where all of these
-- are on one level, its group is compared with the other groups of its step.
with response as (
    select step, group_id, $level as level, reward::double as reward, n_tokens::double as length,
        concat_ws('|', environment, source, temperature, top_p, top_k, adapter) as drawn
    from sequence
    where isfinite(reward) and failure is null and group_id is not null
),
unit as (
    select step, group_id, drawn, level, avg(reward) as reward, avg(length) as length
    from response where level is not null group by all
),
placed as (
    select *, count(*) over (partition by step, group_id, drawn) > 1 as inside from unit
),
compared as (
    select step, level, inside, reward, length, reward - avg(reward) over alike as reward_off,
        length - avg(length) over alike as length_off, count(*) over alike as n_alike
    from placed
    window alike as (partition by step, drawn, inside, case when inside then group_id end)
)
select step, level, bool_or(inside) as inside, count(*) as n, sum(reward) as reward, sum(reward_off) as reward_off,
    sum(reward_off * reward_off) as reward_squares, sum(length) as length, sum(length_off) as length_off,
    sum(length_off * length_off) as length_squares
from compared
where n_alike > 1
group by step, level
order by step, level
