CREATE USER IF NOT EXISTS dbz@'%' IDENTIFIED BY 'dbz'; GRANT ALL ON *.* TO dbz@'%';
DROP DATABASE IF EXISTS shop; CREATE DATABASE shop CHARACTER SET utf8mb4; USE shop;
CREATE TABLE types (
  id int PRIMARY KEY AUTO_INCREMENT,
  ti tinyint, b1 tinyint(1), tu tinyint unsigned, si smallint, su smallint unsigned, mi mediumint, mu mediumint unsigned,
  i int, iu int unsigned, bi bigint, bu bigint unsigned,
  f float, d double, de decimal(10,2), de0 decimal(65,30), bt bit(1), bt12 bit(12), dt date,
  tm time, tm6 time(6), dtt datetime, dt3 datetime(3), dt6 datetime(6), ts timestamp NULL, ts6 timestamp(6) NULL, y year,
  c char(5), vc varchar(20), tx text, bin binary(4), vbin varbinary(8), bl blob,
  en enum('a','b','c d'), st set('x','y','z'), js json, pt point, ln linestring, gen int AS (ti * 2) STORED
);
CREATE TABLE zero (id int PRIMARY KEY, dt date NOT NULL, dtt datetime NOT NULL, dt6 datetime(6) NOT NULL,
  ts timestamp NOT NULL DEFAULT '2020-01-01 00:00:00');
