-- grain: one token. Log-ratios in double, and why a row cannot be used (null: it can). A null is "not logged" and makes
-- no row unusable. `ahead`: by how much the policy's version at the start of the step exceeds the step.
-- `logp_sampled` is what ratios divide by: the sampler's own value, else that of the engine that trains, where it gave the
-- sampling policy's; the engine is then no part of the ratio. Without prompt groups every response is one of its own:
-- ~seq_id is -1 - seq_id, which no value of seq_id overflows.
create or replace view token as
select
    * exclude (ahead) replace (
        coalesce(group_id, ~seq_id) as group_id,
        coalesce(clipped, clip_side <> 0) as clipped
    ),
    group_id is not null as grouped,
    coalesce(logp_behavior, logp_behavior_train) as logp_sampled,
    logp_current::double - logp_sampled::double as log_rho,
    logp_new::double - logp_sampled::double as log_rho_new,
    logp_behavior_train::double - logp_behavior::double as log_engine,
    logp_reference::double - logp_sampled::double as log_reference,
    logp_teacher::double - logp_sampled::double as log_teacher,
    step::bigint + ahead - behavior_version::bigint as version_lag,
    case
        when isnan(logp_sampled) or isnan(logp_current) or isnan(logp_new) then 'nan'
        when isinf(logp_sampled) or logp_current = 'inf'::float or logp_new = 'inf'::float then 'infinite'
        when logp_sampled > $largest or logp_current > $largest or logp_new > $largest then 'positive'
        when not isfinite(advantage) then 'advantage'
    end as invalid
from source;
