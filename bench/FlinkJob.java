import java.io.File;
import java.io.IOException;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.fs.Path;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.formats.parquet.row.ParquetRowDataBuilder;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectReader;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.BucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.OutputFileConfig;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.SimpleVersionedStringSerializer;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.BooleanType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LocalZonedTimestampType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.VarBinaryType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * The bounded job of Flink: the whole topic, JSON to Parquet files, a folder for each event hour, as the jobs of contender.py.
 *
 * <p>Its argument is the file of the task. Flink's cluster is in this JVM and has a slot for each core, as `local[*]`.
 */
public final class FlinkJob {
    private static final int MICROS = 6;
    private static final int AT = 7; // the column of the event time
    private static final long HOUR_MS = 3_600_000;
    private static final LogicalType TEXT = VarCharType.STRING_TYPE;
    private static final LogicalType TIME = new LocalZonedTimestampType(MICROS);
    private static final RowType COLUMNS = RowType.of(
            new LogicalType[] {
                TEXT, new IntType(), new BigIntType(), TIME, new VarBinaryType(VarBinaryType.MAX_LENGTH), new BigIntType(),
                new BigIntType(), TIME, TEXT, TEXT, TEXT, new DoubleType(), new IntType(), new BooleanType(), TEXT, TEXT
            },
            new String[] {
                "_topic", "_partition", "_offset", "_timestamp", "_key", "_manifest_id",
                "id", "at", "user", "kind", "country", "amount", "quantity", "mobile", "session", "referrer"
            });

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode task = json.readTree(new File(arguments[0]));
        Map<String, Double> marks = new HashMap<>();

        Configuration configuration = new Configuration();
        configuration.set(PipelineOptions.OBJECT_REUSE, true); // no copy of a row between reading and writing
        int cores = Runtime.getRuntime().availableProcessors();
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(cores, configuration);
        environment.setRuntimeMode(RuntimeExecutionMode.BATCH); // no checkpoints: the files are committed at the end
        environment
                .fromSource(source(task), WatermarkStrategy.noWatermarks(), "records")
                .sinkTo(sink(task.get("output").asText()));
        JobClient job = environment.executeAsync("bench");
        marks.put("session", now());
        job.getJobExecutionResult().get();
        marks.put("staged", now());
        marks.put("done", now());
        json.writeValue(new File(task.get("marks").asText()), marks);
    }

    private static double now() {
        return System.currentTimeMillis() / 1000.0;
    }

    private static KafkaSource<RowData> source(JsonNode task) {
        return KafkaSource.<RowData>builder()
                .setBootstrapServers(task.get("bootstrap_servers").asText())
                .setTopics(task.get("topic").asText())
                .setProperty("isolation.level", "read_committed")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setDeserializer(new RowDeserializer())
                .build();
    }

    private static FileSink<RowData> sink(String folder) {
        org.apache.hadoop.conf.Configuration parquet = new org.apache.hadoop.conf.Configuration();
        parquet.set("parquet.compression", "ZSTD");
        parquet.setBoolean("parquet.write.int64.timestamp", true);
        parquet.set("parquet.timestamp.time.unit", "micros");
        return FileSink.forBulkFormat(new Path(folder), ParquetRowDataBuilder.createWriterFactory(COLUMNS, parquet, true))
                .withBucketAssigner(new EventHours())
                .withOutputFileConfig(OutputFileConfig.builder().withPartSuffix(".parquet").build())
                .build();
    }

    /** The value of a record; Jackson refuses one that has other fields, and the job fails. */
    public static final class Event {
        public long id;
        public String at;
        public String user;
        public String kind;
        public String country;
        public double amount;
        public int quantity;
        public boolean mobile;
        public String session;
        public String referrer;
    }

    private static final class RowDeserializer implements KafkaRecordDeserializationSchema<RowData> {
        private transient ObjectReader reader;

        @Override
        public void open(DeserializationSchema.InitializationContext context) {
            reader = new ObjectMapper().readerFor(Event.class);
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<RowData> rows) throws IOException {
            Event event = reader.readValue(record.value());
            rows.collect(GenericRowData.of(
                    StringData.fromString(record.topic()),
                    record.partition(),
                    record.offset(),
                    TimestampData.fromEpochMillis(record.timestamp()),
                    record.key(),
                    1L,
                    event.id,
                    TimestampData.fromInstant(Instant.parse(event.at)),
                    StringData.fromString(event.user),
                    StringData.fromString(event.kind),
                    StringData.fromString(event.country),
                    event.amount,
                    event.quantity,
                    event.mobile,
                    StringData.fromString(event.session),
                    StringData.fromString(event.referrer)));
        }

        @Override
        public TypeInformation<RowData> getProducedType() {
            return TypeInformation.of(RowData.class); // no row leaves its thread, so none is serialized
        }
    }

    private static final class EventHours implements BucketAssigner<RowData, String> {
        private static final DateTimeFormatter FOLDER =
                DateTimeFormatter.ofPattern("'day='yyyy-MM-dd'/hour='HH").withZone(ZoneOffset.UTC);
        private final HashMap<Long, String> folders = new HashMap<>();

        @Override
        public String getBucketId(RowData row, Context context) {
            long hour = Math.floorDiv(row.getTimestamp(AT, MICROS).getMillisecond(), HOUR_MS);
            return folders.computeIfAbsent(hour, each -> FOLDER.format(Instant.ofEpochMilli(each * HOUR_MS)));
        }

        @Override
        public SimpleVersionedSerializer<String> getSerializer() {
            return SimpleVersionedStringSerializer.INSTANCE;
        }
    }
}
