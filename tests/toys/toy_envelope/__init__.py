"""An envelope that is not Debezium's: changes of rows as Maxwell writes them (maxwells-daemon.io/dataformat)."""
