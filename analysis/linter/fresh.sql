-- grain: one token of some prompt groups whose engine's part is known, with what places it. The placeholder takes one of
-- how many groups is looked at. visit: how many earlier steps asked the same prompt.
with
response as (
    select
        step, seq_id,
        any_value(engine) as engine, any_value(rank) as rank, any_value(environment) as environment,
        any_value(adapter) as adapter, any_value(prompt_id) as prompt_id
    from sequence group by step, seq_id
),
visit as (
    select step, prompt_id, row_number() over (partition by prompt_id order by step) - 1 as visit
    from (select distinct step, prompt_id from sequence where prompt_id is not null)
)
select
    step, seq_id, group_id, position, turn, token_id, version_lag, logp_behavior, fresh, routing_agreement,
    engine, rank, environment, adapter, prompt_id, visit,
    max(position) over (partition by step, seq_id) as last_position
from (select * from examined where fresh is not null and logp_behavior is not null and hash(step, group_id) % $every = 0)
left join response using (step, seq_id)
left join visit using (step, prompt_id)
order by step, seq_id, position
