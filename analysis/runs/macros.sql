-- Functions of a log-ratio x that keep their digits where x is tiny, which is where on-policy data live.
create macro expm1(x) as case when abs(x) < 1e-4 then x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4))) else exp(x) - 1 end;

-- The two KL terms below as series, for |x| < 1e-2.
create macro expm1_minus_series(x) as x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6))));
create macro reverse_kl_series(x) as x * x * (0.5 + x * (1.0 / 3 + x * (0.125 + x * (1.0 / 30 + x / 144))));

-- e^x - 1 - x, the k3 term; never negative.
create macro expm1_minus(x) as case
    when abs(x) < 1e-2 then expm1_minus_series(x)
    when isinf(x) then 'inf'::double
    else exp(x) - 1 - x end;

-- x e^x - e^x + 1, the reverse KL term; its limit at ratio 0 is 1.
create macro reverse_kl(x) as case
    when x = '-inf'::double then 1
    when abs(x) < 1e-2 then reverse_kl_series(x)
    else (x - 1) * exp(x) + 1 end;

-- log |e^x - 1|
create macro log_abs_expm1(x) as case
    when x = 0 then '-inf'::double
    when x > 30 then x
    when x < -30 then -exp(x)
    else ln(abs(expm1(x))) end;

-- |e^y - e^x|: the larger one times 1 - e^-|y - x|, so that a small step from a large ratio keeps its digits, and a step
-- from a ratio of 0 is not 0 times infinity.
create macro ratio_distance(y, x) as case
    when y = x then 0
    else exp(greatest(x, y) / 2) * -expm1(-abs(y - x)) * exp(greatest(x, y) / 2) end;
