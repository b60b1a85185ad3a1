-- A small shop in memory: customers and their orders, an index, a join with sums, look-ups in no
-- order. For the sqlite3 shell: sqlite3 :memory: '.read workloads/orders.sql'. Its numbers come
-- from arithmetic and not from random(), so that every run does the same.

CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city INTEGER);
CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer INTEGER, cents INTEGER, note TEXT);

WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
INSERT INTO customer SELECT i, 'customer number ' || i, i * 7919 % 100 FROM n;

WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
INSERT INTO purchase
SELECT i, i * 104729 % 10000 + 1, i * 31 % 9973, 'purchase ' || i || ' of the small shop' FROM n;

CREATE INDEX purchase_by_customer ON purchase (customer);

SELECT city, count(*), sum(cents) / 100
FROM customer JOIN purchase ON purchase.customer = customer.id
GROUP BY city ORDER BY 3 DESC LIMIT 3;

WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
SELECT sum(cents) FROM n JOIN purchase ON purchase.id = i * 15485863 % 60000 + 1;
