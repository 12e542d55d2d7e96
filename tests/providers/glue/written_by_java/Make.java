import com.amazonaws.services.schemaregistry.serializers.GlueSchemaRegistryKafkaSerializer;
import com.amazonaws.services.schemaregistry.serializers.json.JsonDataWithSchema;
import com.google.protobuf.DescriptorProtos.*;
import com.google.protobuf.Descriptors.*;
import com.google.protobuf.DynamicMessage;
import java.util.*;
import java.nio.file.*;
import org.apache.avro.Schema;
import org.apache.avro.generic.*;

/** Writes records with AWS's serializers for Kafka: FORMAT COMPRESSION TOPIC HEX, one a line. */
public class Make {
    static final String AVRO = "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":["
        + "{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"item\",\"type\":[\"null\",\"string\"],\"default\":null}]}";
    static final String JSON = "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"object\",\"properties\":"
        + "{\"id\":{\"type\":\"integer\"},\"item\":{\"type\":\"string\"}},\"required\":[\"id\"]}";

    static void write(String format, String compression, Object value) {
        Map<String, Object> config = new HashMap<>();
        config.put("region", "eu-central-1");
        config.put("endpoint", System.getenv("GLUE"));
        config.put("dataFormat", format);
        config.put("compression", compression);
        config.put("avroRecordType", "GENERIC_RECORD");
        config.put("protobufMessageType", "DYNAMIC_MESSAGE");
        config.put("schemaAutoRegistrationEnabled", true);
        config.put("registry.name", "default-registry");
        GlueSchemaRegistryKafkaSerializer serializer = new GlueSchemaRegistryKafkaSerializer();
        serializer.configure(config, false);
        String topic = "made-" + format.toLowerCase();
        System.out.println("RECORD " + format + " " + compression + " " + topic + " "
            + HexFormat.of().formatHex(serializer.serialize(topic, value)));
    }

    public static void main(String[] words) throws Exception {
        GenericRecord order = new GenericData.Record(new Schema.Parser().parse(AVRO));
        order.put("id", 7L);
        order.put("item", "tea");
        FileDescriptorSet set = FileDescriptorSet.parseFrom(Files.readAllBytes(Path.of(words[0])));
        FileDescriptor file = FileDescriptor.buildFrom(set.getFile(0), new FileDescriptor[0]);
        Descriptor outer = file.findMessageTypeByName("Order");
        Descriptor inner = outer.findNestedTypeByName("Line");
        DynamicMessage line = DynamicMessage.newBuilder(inner).setField(inner.findFieldByName("sku"), "tea")
            .setField(inner.findFieldByName("count"), 2).build();
        DynamicMessage message = DynamicMessage.newBuilder(outer).setField(outer.findFieldByName("id"), 7L)
            .addRepeatedField(outer.findFieldByName("lines"), line).build();
        for (String compression : List.of("NONE", "ZLIB")) {
            write("AVRO", compression, order);
            write("JSON", compression, JsonDataWithSchema.builder(JSON, "{\"id\":7,\"item\":\"tea\"}").build());
            write("PROTOBUF", compression, message);
            write("PROTOBUF", compression, line);
        }
        System.exit(0);
    }
}
