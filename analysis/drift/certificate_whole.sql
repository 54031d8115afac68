-- grain: one response. What does not depend on the discount: the ratios of whole responses; the excess ratios of its tokens
-- added up; and its distances, each times the positions that it reaches: all later ones.
create or replace temp table whole as
with
reaching as (select *, max(position) over (partition by step) - position as later from token)
select
    step, seq_id,
    sum(log_rho) as log_w,
    case when count(log_rho_new) = count(*) then sum(log_rho_new) end as log_w_new,
    sum(sign(log_rho_new) * ratio_distance(log_rho_new, 0)) as excess,
    sum(case when log_rho_new < 0 then -expm1(log_rho_new) * later else 0 end) as reach,
    bool_and(invalid is null and log_rho is not null) as valid
from reaching
group by step, seq_id
