-- grain: one token with a known engine's part, with what places it in its response. should: the mean shortfall of tokens
-- that are about as sure, which is what a difference of logits of one size makes.
create or replace temp table placed as
select
    engine_token.*,
    avg(shortfall) over (partition by round(2 * ln(1 - exp(least(logp_behavior, 0)) + 1e-4))) as should,
    engine, rank, environment, adapter,
    max(position) over (partition by step, seq_id) as last_position,
    min(position) over (partition by step, seq_id, turn) as turn_start,
    max(turn) over (partition by step, seq_id) - min(turn) over (partition by step, seq_id) + 1 as n_turns
from engine_token
left join (select step, seq_id, engine, rank, environment, adapter from sequence) as response using (step, seq_id);
