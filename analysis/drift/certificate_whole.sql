-- grain: one response. What does not depend on the discount: the ratios of whole responses, and the excess ratios of its
-- tokens added up.
create or replace temp table whole as
select
    step, seq_id,
    sum(log_rho) as log_w,
    case when count(log_rho_new) = count(*) then sum(log_rho_new) end as log_w_new,
    sum(sign(log_rho_new) * ratio_distance(log_rho_new, 0)) as excess,
    bool_and(invalid is null) as valid
from token
group by step, seq_id
