-- grain: one token. Log-ratios in double, and why a row cannot be used (null: it can). `ahead`: by how much the policy's
-- version at the start of the step exceeds the step.
create or replace view token as
select
    * exclude (ahead) replace (coalesce(clipped, clip_side <> 0) as clipped),
    logp_current::double - logp_behavior::double as log_rho,
    logp_new::double - logp_behavior::double as log_rho_new,
    logp_behavior_train::double - logp_behavior::double as log_engine,
    logp_reference::double - logp_behavior::double as log_reference,
    step + ahead - behavior_version as version_lag,
    case
        when logp_behavior is null or logp_current is null then 'nan'  -- required: a writer that knows no better
        when isnan(logp_behavior) or isnan(logp_current) or coalesce(isnan(logp_new), false) then 'nan'
        when isinf(logp_behavior) or logp_current = 'inf'::float or coalesce(logp_new = 'inf'::float, false) then 'infinite'
        when greatest(logp_behavior, logp_current, coalesce(logp_new, logp_current)) > $largest then 'positive'
        when advantage is null or not isfinite(advantage) then 'advantage'
    end as invalid
from source;

create or replace view usable as select * exclude (invalid) from token where invalid is null;
