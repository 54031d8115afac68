-- grain: one unit of a pair p/q, a token or a sequence: four views, and macros of the terms that are averaged over units.
-- $numerator and $denominator: the columns of log p and log q.
-- x = log p/b, y = log q/b, z = log p/q. z has its own sum: x - y loses its digits where both are far from b.

-- |e^x - e^y|
create or replace macro pair_distance(x, y, z) as case
    when z = 0 then 0
    else exp(greatest(x, y) / 2) * -expm1(-abs(z)) * exp(greatest(x, y) / 2) end;

-- e^y (e^z - 1 - z), the k3 term of KL(q||p) under b; never negative. p and q exchanged, it is the term of KL(p||q).
create or replace macro pair_expm1_minus(x, y, z) as case
    when z = 0 then 0
    when y = '-inf'::double then exp(x)
    when z = '-inf'::double then 'inf'::double
    when z < 1 then exp(y) * expm1_minus(z)
    else exp(x) * (1 - exp(-z) * (1 + z)) end;

-- e^y times a power or a multiple of z, which is 0 where q never samples, and infinite where only p does not.
create or replace macro pair_weighted(y, z, term) as case
    when z = 0 or y = '-inf'::double then 0
    when z = '-inf'::double then 'inf'::double
    else exp(y) * term end;

-- log of e^y e^2z: the squared ratio under q
create or replace macro pair_log_square(y, z) as case when z = 'inf'::double then z else y + 2 * z end;

-- log of e^y (e^z - 1)^2
create or replace macro pair_log_chi2(y, z) as case when z = 'inf'::double then z else y + 2 * log_abs_expm1(z) end;

create or replace view token_unit as
select
    step, group_id, seq_id, position,
    $numerator::double - logp_sampled::double as x,
    $denominator::double - logp_sampled::double as y,
    case when $numerator = $denominator then 0 else $numerator::double - $denominator::double end as z,
    -- NaN is the largest number to DuckDB: the comparison rejects it, as it does infinity
    coalesce(invalid is null and logp_sampled <= 1e-4 and $numerator <= 1e-4 and $denominator <= 1e-4, false) as usable,
    case
        when $numerator is null then '$numerator'
        when logp_sampled is null then 'logp_behavior'
        when $denominator is null then '$denominator'
    end as missing,
    1.0::double as weight
from token;

create or replace view token_by_sequence_unit as  -- every sequence weighs the same, whatever its length
select * exclude (weight), 1.0::double / count(*) filter (usable) over (partition by step, seq_id) as weight
from token_unit;

create or replace view sequence_unit as  -- one unusable token leaves the sequence without a W
select
    step, group_id, seq_id,
    sum(x) as x,
    sum(y) as y,
    case when sum(x) = sum(y) and isinf(sum(x)) then 0 else sum(z) end as z,
    bool_and(usable) as usable,
    any_value(missing) as missing,
    1.0::double as weight,
    count(*) as length
from token_unit
group by step, group_id, seq_id;

create or replace view geometric_unit as
select * replace (x / length as x, y / length as y, z / length as z) from sequence_unit;
