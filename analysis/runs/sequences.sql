-- grain: one sampled response.
create or replace view sequence as select * from source;
