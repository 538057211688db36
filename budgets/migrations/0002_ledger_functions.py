"""The ledger's own functions on PostgreSQL, and append-only entries on both databases.

Why functions: measured, a hold is then one round trip whose locks end with it; see docs/budgets.md.
"""

from django.db import migrations

POSTGRESQL = r"""
-- Lock order everywhere: the reservation's row, then meters by ascending id.
CREATE FUNCTION budgets_reserve(
    p_key text, p_fingerprint text, p_names text[], p_usd bigint, p_tokens bigint, p_calls bigint,
    p_owner text, p_lease_seconds integer,
    p_organization uuid, p_project uuid, p_user uuid, p_change uuid, p_task uuid, p_run uuid,
    p_purpose text, p_tier text, p_model text, p_connector text,
    OUT result text, OUT reservation_id bigint, OUT state text, OUT lease_until timestamptz, OUT lapsed boolean,
    OUT refusing jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v record; n int; ids jsonb; t timestamptz;
BEGIN
  IF p_tokens IS NULL OR p_calls IS NULL OR least(p_usd, p_tokens, p_calls) < 0 THEN
    RAISE EXCEPTION 'bad amounts (%, %, %)', p_usd, p_tokens, p_calls;
  END IF;
  -- 1. Lock in ascending id (LockRows runs above the sort whatever the plan) and name every meter without room.
  SELECT count(*), jsonb_agg(l.id ORDER BY l.id),
         jsonb_agg(jsonb_build_object(
           'organization_id', l.organization_id, 'kind', l.kind, 'subject', l.subject, 'period', l.period,
           'limit_usd', l.limit_usd, 'limit_tokens', l.limit_tokens, 'limit_calls', l.limit_calls,
           'spent_usd', l.spent_usd, 'spent_tokens', l.spent_tokens, 'spent_calls', l.spent_calls,
           'held_usd', l.held_usd, 'held_tokens', l.held_tokens, 'held_calls', l.held_calls))
         FILTER (WHERE (l.limit_usd IS NOT NULL
                        AND (p_usd IS NULL OR l.limit_usd = 0 OR l.limit_usd - l.spent_usd - l.held_usd < p_usd))
                    OR (l.limit_tokens IS NOT NULL
                        AND (l.limit_tokens = 0 OR l.limit_tokens - l.spent_tokens - l.held_tokens < p_tokens))
                    OR (l.limit_calls IS NOT NULL
                        AND (l.limit_calls = 0 OR l.limit_calls - l.spent_calls - l.held_calls < p_calls)))
    INTO n, ids, refusing
    FROM (SELECT * FROM budgets_meter WHERE name = ANY (p_names) ORDER BY id FOR NO KEY UPDATE) l;
  t := clock_timestamp();  -- after the wait for the locks: the lease counts from here
  -- 2. Under the locks, with a fresh snapshot: a redelivery finds its reservation; it is never refused.
  SELECT r.id, r.state, r.fingerprint, r.lease_until INTO v FROM budgets_reservation r WHERE r.key = p_key;
  IF FOUND THEN
    result := CASE WHEN v.fingerprint = p_fingerprint THEN 'exists' ELSE 'conflict' END;
    reservation_id := v.id; state := v.state; lease_until := v.lease_until; lapsed := v.lease_until < t;
    refusing := NULL;
    RETURN;
  END IF;
  IF n <> cardinality(p_names) THEN result := 'missing'; refusing := NULL; RETURN; END IF;
  IF refusing IS NOT NULL THEN result := 'refused'; RETURN; END IF;
  -- 3. Write.
  lease_until := t + p_lease_seconds * interval '1 second'; lapsed := false;
  WITH u AS (UPDATE budgets_meter SET held_usd = held_usd + coalesce(p_usd, 0), held_tokens = held_tokens + p_tokens,
                                      held_calls = held_calls + p_calls
              WHERE name = ANY (p_names)),
       r AS (INSERT INTO budgets_reservation (
               key, fingerprint, state, meters, priced, hold_usd, hold_tokens, hold_calls, overrun, usage_quality,
               organization_id, project_id, user_id, change_id, task_id, run_id, purpose, tier, model, connector,
               owner, lease_until, created_at)
             VALUES (
               p_key, p_fingerprint, 'held', ids, p_usd IS NOT NULL, coalesce(p_usd, 0), p_tokens, p_calls, false, '',
               p_organization, p_project, p_user, p_change, p_task, p_run, p_purpose, p_tier, p_model, p_connector,
               p_owner, lease_until, t)
             RETURNING id)
  INSERT INTO budgets_entry (reservation_id, kind, held_usd, held_tokens, held_calls,
                             spent_usd, spent_tokens, spent_calls, actor, reason, at)
  SELECT r.id, 'hold', coalesce(p_usd, 0), p_tokens, p_calls, 0, 0, 0, p_owner, '', t FROM r
  RETURNING budgets_entry.reservation_id INTO reservation_id;
  result := 'ok'; state := 'held';
END $$;

CREATE FUNCTION budgets_close(
    p_id bigint, p_to text, p_usd bigint, p_tokens bigint, p_usage jsonb, p_quality text, p_rates jsonb,
    p_actor text, p_reason text, p_released_by uuid, p_thresholds integer[],
    OUT result text, OUT state text, OUT usd bigint, OUT overrun boolean, OUT meters jsonb, OUT crossed jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v record; too text := p_to; final text; e text; n int; t timestamptz := clock_timestamp();
        u bigint; k bigint; c bigint; known bigint;
        hu bigint := 0; hk bigint := 0; hc bigint := 0; su bigint; sk bigint; sc bigint;
BEGIN
  SELECT r.* INTO v FROM budgets_reservation r WHERE r.id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN result := 'missing'; RETURN; END IF;
  overrun := v.overrun; state := v.state; usd := v.usd;
  -- A report that nobody could read or price keeps the worst case.
  IF too = 'settled' AND (p_tokens IS NULL OR (p_usd IS NULL AND v.priced)) THEN too := 'unknown'; END IF;
  CASE too
    WHEN 'settled'  THEN u := coalesce(p_usd, 0); k := p_tokens; c := v.hold_calls; known := p_usd;
    WHEN 'unknown'  THEN u := v.hold_usd; k := v.hold_tokens; c := v.hold_calls;
    WHEN 'refunded' THEN u := 0; k := 0; c := 0; known := 0;
    WHEN 'released' THEN u := 0; k := 0; c := v.hold_calls; known := 0;
    ELSE RAISE EXCEPTION 'close to %', too;
  END CASE;
  IF least(u, k, c) < 0 THEN RAISE EXCEPTION 'bad amounts (%, %, %)', u, k, c; END IF;
  final := CASE too WHEN 'released' THEN 'refunded' ELSE too END;
  IF v.state = 'held' AND too <> 'released' THEN
    e := CASE too WHEN 'settled' THEN 'settle' WHEN 'refunded' THEN 'refund' ELSE 'unknown' END;
    hu := -v.hold_usd; hk := -v.hold_tokens; hc := -v.hold_calls; su := u; sk := k; sc := c; result := 'ok';
  ELSIF v.state = final AND (v.usd, v.tokens, v.calls) = (u, k, c) AND v.cost IS NOT DISTINCT FROM known THEN
    result := 'already'; RETURN;
  ELSIF v.state = 'settled' AND too = 'unknown' THEN
    result := 'already'; RETURN;  -- the reaper lost the race, or a second report says less: the first one stands
  ELSIF v.state = 'unknown' AND too = 'released' THEN
    e := 'release'; su := u - v.usd; sk := k - v.tokens; sc := c - v.calls; result := 'ok';
  ELSIF (v.state = 'unknown' AND too IN ('settled', 'refunded'))
        OR (v.state = 'refunded' AND v.released_by_id IS NOT NULL AND too = 'settled') THEN
    e := 'late'; su := u - v.usd; sk := k - v.tokens; sc := c - v.calls; result := 'late';
  ELSE
    result := 'conflict'; RETURN;
  END IF;
  state := final; usd := u; meters := v.meters;
  overrun := u > v.hold_usd OR k > v.hold_tokens OR c > v.hold_calls;
  WITH l AS MATERIALIZED (SELECT id FROM budgets_meter
                           WHERE id = ANY (ARRAY(SELECT x::bigint FROM jsonb_array_elements_text(v.meters) x))
                           ORDER BY id FOR NO KEY UPDATE),
       m AS (UPDATE budgets_meter m
                SET held_usd = held_usd + hu, held_tokens = held_tokens + hk, held_calls = held_calls + hc,
                    spent_usd = spent_usd + su, spent_tokens = spent_tokens + sk, spent_calls = spent_calls + sc
               FROM l WHERE m.id = l.id
             RETURNING m.id, m.limit_usd, m.spent_usd, m.limit_tokens, m.spent_tokens, m.limit_calls, m.spent_calls),
       r AS (UPDATE budgets_reservation
                SET state = final, usd = u, tokens = k, calls = c,
                    cost = known, closed_at = t, overrun = u > v.hold_usd OR k > v.hold_tokens OR c > v.hold_calls,
                    usage = coalesce(p_usage, usage), rates = coalesce(p_rates, rates),
                    usage_quality = CASE WHEN p_quality <> '' THEN p_quality ELSE usage_quality END,
                    released_by_id = coalesce(p_released_by, released_by_id)
              WHERE id = p_id),
       w AS (INSERT INTO budgets_entry (reservation_id, kind, held_usd, held_tokens, held_calls,
                                        spent_usd, spent_tokens, spent_calls, actor, reason, at)
             VALUES (p_id, e, hu, hk, hc, su, sk, sc, p_actor, p_reason, t))
  -- Whole percents decide as well as exact ones, since the thresholds are whole.
  SELECT count(*),
         jsonb_agg(m.id) FILTER (
           WHERE (limit_usd > 0 AND width_bucket(spent_usd * 100 / nullif(limit_usd, 0), p_thresholds::bigint[])
                                  > width_bucket((spent_usd - su) * 100 / nullif(limit_usd, 0), p_thresholds::bigint[]))
              OR (limit_tokens > 0 AND width_bucket(spent_tokens * 100 / nullif(limit_tokens, 0), p_thresholds::bigint[])
                                     > width_bucket((spent_tokens - sk) * 100 / nullif(limit_tokens, 0), p_thresholds::bigint[]))
              OR (limit_calls > 0 AND width_bucket(spent_calls * 100 / nullif(limit_calls, 0), p_thresholds::bigint[])
                                    > width_bucket((spent_calls - sc) * 100 / nullif(limit_calls, 0), p_thresholds::bigint[])))
    INTO n, crossed FROM m;
  IF n <> jsonb_array_length(v.meters) THEN
    RAISE EXCEPTION 'reservation %: % of % meters updated', p_id, n, jsonb_array_length(v.meters);
  END IF;
END $$;

-- One reservation a transaction: two in one would break the ascending lock order. Call until it returns NULL.
-- Leases were given by this clock; a caller whose clock runs ahead cannot reap early.
CREATE FUNCTION budgets_reap_one(p_now timestamptz, p_actor text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v bigint;
BEGIN
  SELECT id INTO v FROM budgets_reservation WHERE state = 'held' AND lease_until < least(p_now, clock_timestamp())
   ORDER BY lease_until LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
  IF v IS NOT NULL THEN
    PERFORM budgets_close(v, 'unknown', NULL, NULL, NULL, '', NULL, p_actor, 'the lease ended', NULL, '{}');
  END IF;
  RETURN v;
END $$;

CREATE FUNCTION budgets_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$;
CREATE TRIGGER entry_append_only BEFORE UPDATE OR DELETE ON budgets_entry
  FOR EACH ROW EXECUTE FUNCTION budgets_append_only();
CREATE TRIGGER limit_change_append_only BEFORE UPDATE OR DELETE ON budgets_limitchange
  FOR EACH ROW EXECUTE FUNCTION budgets_append_only();

-- Room on each page for the next versions of a hot row: its updates stay heap-only.
ALTER TABLE budgets_meter SET (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE budgets_reservation SET (fillfactor = 70);
"""

POSTGRESQL_BACK = """
DROP TRIGGER entry_append_only ON budgets_entry;
DROP TRIGGER limit_change_append_only ON budgets_limitchange;
DROP FUNCTION budgets_append_only();
DROP FUNCTION budgets_reap_one(timestamptz, text);
DROP FUNCTION budgets_close(bigint, text, bigint, bigint, jsonb, text, jsonb, text, text, uuid, integer[]);
DROP FUNCTION budgets_reserve(text, text, text[], bigint, bigint, bigint, text, integer,
                              uuid, uuid, uuid, uuid, uuid, uuid, text, text, text, text);
"""

# No trigger on DELETE here: Django empties a SQLite database row by row, for its tests and for `flush`.
# A missing entry is found by the audit (I2, I4).
SQLITE = [
    "CREATE TRIGGER entry_append_only BEFORE UPDATE ON budgets_entry"
    " BEGIN SELECT RAISE(ABORT, 'budgets_entry is append-only'); END",
    "CREATE TRIGGER limit_change_append_only BEFORE UPDATE ON budgets_limitchange"
    " BEGIN SELECT RAISE(ABORT, 'budgets_limitchange is append-only'); END",
]
SQLITE_BACK = ["DROP TRIGGER entry_append_only", "DROP TRIGGER limit_change_append_only"]


def install(_apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(POSTGRESQL, params=None)
    else:
        for statement in SQLITE:
            schema_editor.execute(statement)


def remove(_apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(POSTGRESQL_BACK, params=None)
    else:
        for statement in SQLITE_BACK:
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("budgets", "0001_ledger_rows")]
    operations = [migrations.RunPython(install, remove)]
