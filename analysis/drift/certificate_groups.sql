-- grain: one prompt group of one step that has tokens. Sums over the responses that count for the certificate.
-- A discounted distance gamma^t |e^y - e^x| is ratio_distance of both logarithms, shifted by t ln gamma. Distances are
-- in the bounded form, the mean of what falls: it is a total variation whatever the sampler cannot draw, and the triangle
-- (1 - rho_new)+ <= (1 - rho)+ + (rho - rho_new)+ holds token by token.
with
terms as (
    select
        step, group_id, seq_id,
        bool_and(valid) as valid,
        bool_and(log_rho_new is not null) as has_new,
        min(behavior_version) <> max(last_version) as mixed,
        sum(n_tokens) as n_rows,
        sum(sign(log_rho_new) * ratio_distance(log_rho_new + log_discount, log_discount)) filter (valid) as gain,
        sum(case
            when log_rho_new < log_rho then ratio_distance(log_rho_new + log_discount, log_rho + log_discount)
            when log_rho is not null then 0 end
        ) filter (valid) as drift,
        sum(case
            when log_rho < 0 then ratio_distance(log_rho + log_discount, log_discount)
            when log_rho is not null then 0 end
        ) filter (valid) as staleness
    from action
    group by step, group_id, seq_id
),
rewards as (  -- of every response of the group: one that the loss left out is still a sample for the baseline
    select
        step, seq_id, n_tokens, reward::double as reward,
        reward::double - (sum(reward::double) over siblings - reward) / nullif(count(*) over siblings - 1, 0) as advantage
    from sequence
    where isfinite(reward)
    window siblings as (partition by step, group_id)
),
complete as (
    select
        terms.*, excess, reach, greatest(log_w, log_w_new) as log_largest, reward, advantage, n_tokens > n_rows as shortened,
        case when log_w_new < log_w then -1 else 1 end * ratio_distance(log_w_new, log_w) as change,
        terms.valid and reward is not null as usable
    from terms
    join whole using (step, seq_id)
    left join rewards using (step, seq_id)
),
with_new as (
    select *, usable and (has_new or not bool_or(usable and has_new) over (partition by step)) as kept from complete
),
counted as (  -- what no response of the step has excludes none of them
    select
        *,
        kept and (advantage is not null or not bool_or(kept and advantage is not null) over (partition by step)) as counts
    from with_new
)
select
    step, group_id,
    count(*) filter (counts) as n,
    -- an infinite ratio of a response without advantage is no gain
    sum(case when advantage = 0 then 0 else gain * advantage end) filter (counts and has_new) as surrogate,
    sum(case when advantage = 0 then 0 else excess * advantage end) filter (counts and has_new) as surrogate_whole,
    max(abs(change * advantage)) filter (counts and has_new) as largest_gain,
    sum((change * advantage) ** 2) filter (counts and has_new) as squared_gain,
    max(log_largest) filter (counts and has_new) as log_largest,
    sum(reach) filter (counts and has_new) as reach,
    sum(case when advantage = 0 then 0 else change * advantage end) filter (counts and has_new) as gain,
    sum(drift) filter (counts and has_new) as drift,
    sum(staleness) filter (counts) as staleness,
    max(abs(advantage)) filter (counts) as largest_advantage,
    min(reward) as lowest_reward,
    max(reward) as highest_reward,
    count(*) as n_responses,
    count(*) filter (not valid) as n_invalid,
    count(*) filter (valid and reward is null) as n_no_reward,
    count(*) filter (usable and not kept) as n_no_new,
    count(*) filter (kept and not counts) as n_alone,
    count(*) filter (counts and has_new) as n_new,
    count(*) filter (counts and advantage is not null) as n_baseline,
    count(*) filter (counts and mixed) as n_mixed,
    count(*) filter (counts and shortened) as n_shortened
from counted
group by step, group_id
order by step, group_id
