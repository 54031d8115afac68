-- grain: one prompt group of one step. The placeholder takes a count for each fault that a row can have.
select
    step, group_id,
    $counts,
    count(*) as n_rows,
    count(*) filter (behavior_version is null) as n_unlabelled,
    count(logp_new) as n_new,
    count(logp_behavior_train) as n_train,
    count(clip_side) filter (clipped is not null) as n_clip,
    count(gate) as n_gate,
    count(gradient_weight) as n_gradient,
    min(version_lag) as min_version_lag, max(version_lag) as max_version_lag,
    count(*) filter (version_lag > 0 and uncertain) as n_stale,
    count(*) filter (version_lag = 1 and uncertain) as n_one_behind,
    count(*) filter (version_lag = 1 and uncertain and abs(log_rho) <= 1e-5) as n_one_behind_equal,
    count(logp_new) filter (logp_current < -1e-3) as n_moved,
    min(logp_behavior) as min_logp_behavior, max(logp_behavior) as max_logp_behavior,
    min(logp_behavior_train) as min_logp_behavior_train, max(logp_behavior_train) as max_logp_behavior_train,
    min(logp_current) as min_logp_current, max(logp_current) as max_logp_current,
    min(logp_new) as min_logp_new, max(logp_new) as max_logp_new,
    min(logp_reference) as min_logp_reference, max(logp_reference) as max_logp_reference,
    min(entropy) as min_entropy, max(entropy) as max_entropy,
    count(*) filter (invalid is null) as n_usable,
    count(log_rho) filter (invalid is null) as n_rho,
    sum(exp(log_rho)) filter (invalid is null) as rho,
    count(fresh) as n_fresh,
    sum(exp(fresh)) as fresh_rho,
    sum(abs(expm1(fresh))) as fresh_deviation,
    max(abs(fresh)) as max_fresh,
    count(*) filter (fresh > 1e-3) as n_fresh_above,
    count(*) filter (fresh < -1e-3) as n_fresh_below
from examined
group by step, group_id
order by step, group_id
