-- grain: one token of some prompt groups whose engine's part is known, with what places it. The placeholders take one of
-- how many groups is looked at, and what stands for the engine's part. visit: how many earlier steps asked the prompt.
-- behind_change: tokens since the last change of version within the response; null before the first one.
-- before_change: tokens between this one and the next change; null behind the last one.
-- later_half: whether a response is in the later half of its micro-batch; null in the middle, and where it holds one
-- prompt group alone, in which the place is that in the group.
-- onward: how far the current policy is beyond the trainer's policy of the same weights, in nats.
with
response as (
    select
        step, seq_id,
        any_value(engine) as engine, any_value(rank) as rank, any_value(environment) as environment,
        any_value(adapter) as adapter, any_value(prompt_id) as prompt_id,
        any_value(history_break) as history_break,
        -- Between turns stands what no position counts.
        any_value(prompt_tokens) 
            filter (prompt_tokens >= 0 and coalesce(n_turns, 1) < 2 and coalesce(n_tool_calls, 0) = 0) as prompt_tokens
    from sequence group by step, seq_id
),
pack as (
    select
        step, seq_id,
        case when 2 * number <> n + 1 and first_group <> last_group then 2 * number > n + 1 end as later_half
    from (
        select
            step, seq_id, row_number() over (pack_of order by seq_id) as number, count(*) over pack_of as n,
            min(group_id) over pack_of as first_group, max(group_id) over pack_of as last_group
        from (
            select step, seq_id, any_value(rank) as rank, any_value(micro_batch) as micro_batch,
                any_value(group_id) as group_id
            from sequence group by step, seq_id
        )
        where rank is not null and micro_batch is not null
        window pack_of as (partition by step, rank, micro_batch)
    )
),
visit as (
    select step, prompt_id, row_number() over (partition by prompt_id order by step) - 1 as visit
    from (select distinct step, prompt_id from sequence where prompt_id is not null)
),
stretch as (
    select step, seq_id, behavior_version, min(position) as begins, max(position) as ends
    from examined group by step, seq_id, behavior_version
),
versions_of as (
    select step, seq_id, min(behavior_version) as oldest, max(behavior_version) as newest
    from stretch group by step, seq_id
),
placed as (
    select step, seq_id, group_id, position, turn, token_id, version_lag, logp_behavior, behavior_version,
        $apart as apart, routing_agreement, segment_id, logp_current::double - logp_same_engine as onward
    from examined
    where logp_behavior is not null and isfinite($apart) and invalid is null and hash(step, group_id) % $every = 0
),
extent as (
    select step, seq_id, max(position) as last_position, min(turn) is not distinct from max(turn) as of_one_turn
    from placed group by step, seq_id
)
select
    step, seq_id, group_id, position, turn, token_id, version_lag, logp_behavior, apart as fresh, routing_agreement,
    engine, rank, environment, adapter, prompt_id, visit, segment_id, history_break, later_half,
    case when behavior_version > oldest then position - begins end as behind_change,
    case when behavior_version < newest then ends - position end as before_change,
    onward,
    case when of_one_turn then prompt_tokens + position end as absolute,
    last_position
from placed
join extent using (step, seq_id)
left join versions_of using (step, seq_id)
left join stretch using (step, seq_id, behavior_version)
left join response using (step, seq_id)
left join pack using (step, seq_id)
left join visit using (step, prompt_id)
order by step, seq_id, position
