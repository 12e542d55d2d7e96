-- name: lacking
-- A missing table needs no right. A missing schema needs the right to create it in the database.
WITH wanted AS (
    SELECT * FROM unnest(%(schemas)s::text[], %(tables)s::text[], %(rights)s::text[]) AS w (schema, name, right_name)),
lacking AS (
    SELECT 1 AS place, 'DATABASE' AS kind, NULL AS schema, current_database()::text AS name, 'CREATE' AS right_name
    FROM wanted w WHERE w.name IS NULL AND w.right_name = 'CREATE' AND to_regnamespace(quote_ident(w.schema)) IS NULL
      AND NOT has_database_privilege(current_database(), 'CREATE')
    UNION ALL
    SELECT 2, 'SCHEMA', n.nspname::text, n.nspname::text, w.right_name
    FROM wanted w JOIN pg_namespace n ON n.nspname = w.schema
    WHERE w.name IS NULL AND NOT has_schema_privilege(n.oid, w.right_name)
    UNION ALL
    SELECT CASE c.relkind WHEN 'S' THEN 4 ELSE 3 END, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
           n.nspname::text, c.relname::text, w.right_name
    FROM wanted w
    JOIN pg_namespace n ON n.nspname = w.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND (w.name = '' OR c.relname = w.name)
                   AND c.relpersistence = 'p'  -- without staging tables: they belong to the user that stages
    WHERE CASE c.relkind
          WHEN 'S' THEN w.right_name = 'UPDATE' AND NOT has_sequence_privilege(c.oid, 'UPDATE')
          WHEN 'v' THEN w.right_name = 'SELECT' AND NOT has_table_privilege(c.oid, 'SELECT')
          WHEN 'r' THEN NOT has_table_privilege(c.oid, w.right_name)
          WHEN 'p' THEN NOT has_table_privilege(c.oid, w.right_name)
          ELSE false END)
SELECT place, kind, schema, concat_ws('.', quote_ident(CASE WHEN place > 2 THEN schema END), quote_ident(name)) AS name,
       string_agg(DISTINCT right_name, ', ') AS rights, quote_ident(current_user) AS grantee
FROM lacking GROUP BY place, kind, schema, name ORDER BY place, name;
