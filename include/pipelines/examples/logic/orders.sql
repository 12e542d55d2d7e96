SELECT
    order_id,
    trim(customer) AS customer,
    upper(country) AS country,
    CAST(price * quantity AS DECIMAL(18, 2)) AS total,
    ordered_at
FROM batch
