// What decode + map + fold cost per event, for small and large messages, protobuf and JSON. No
// database: the statements are the runner's bench to measure.
//
//   scripts/bench projection
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "platform/status.h"
#include "projections/declare/group_file.h"
#include "projections/write/fold.h"
#include "projections/write/group_projector.h"

namespace lockstep::projections {
namespace {

namespace pb = google::protobuf;

constexpr int kBatch = 500;

// A message with `fields` scalar fields; every sixth of them sits in a nested message.
pb::FileDescriptorSet Descriptors(int fields) {
  pb::FileDescriptorSet set;
  pb::FileDescriptorProto* file = set.add_file();
  file->set_name("bench.proto");
  file->set_package("bench");
  file->set_syntax("proto3");
  pb::DescriptorProto* inner = file->add_message_type();
  inner->set_name("Inner");
  pb::DescriptorProto* thing = file->add_message_type();
  thing->set_name("Thing");
  const auto add = [](pb::DescriptorProto* to, const std::string& name, int number, auto type) {
    pb::FieldDescriptorProto* field = to->add_field();
    field->set_name(name);
    field->set_number(number);
    field->set_type(type);
    field->set_label(pb::FieldDescriptorProto::LABEL_OPTIONAL);
    return field;
  };
  add(thing, "id", 1, pb::FieldDescriptorProto::TYPE_STRING);
  add(thing, "inner", 2, pb::FieldDescriptorProto::TYPE_MESSAGE)->set_type_name(".bench.Inner");
  for (int i = 1; i < fields; ++i) {
    const auto type = i % 3 == 0   ? pb::FieldDescriptorProto::TYPE_INT64
                      : i % 3 == 1 ? pb::FieldDescriptorProto::TYPE_STRING
                                   : pb::FieldDescriptorProto::TYPE_BOOL;
    add(i % 6 == 0 ? inner : thing, fmt::format("f{}", i), 10 + i, type);
  }
  return set;
}

std::string Yaml(int fields, const std::string& descriptors, const std::string& operation) {
  std::string yaml = fmt::format(
      "group: bench\nsubscription: bench\ndescriptors: {}\nprojections:\n  - name: things\n"
      "    table: bench.thing\n    key: id\n    version: version\n    events:\n      Thing:\n"
      "        {}:\n",
      descriptors, operation);
  for (int i = 1; i < fields; ++i) {
    yaml += fmt::format("          f{0}: {1}f{0}\n", i, i % 6 == 0 ? "inner." : "");
  }
  return yaml;
}

void Fill(pb::Message* message, int event) {
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const auto* field = message->GetDescriptor()->field(i);
    switch (field->cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_STRING:
        reflection->SetString(message, field,
                              field->name() == "id"
                                  ? fmt::format("6f0c2f5e-7d0c-4b52-9f0c-{:012}", event)
                                  : fmt::format("a title of some length {}", event));
        break;
      case pb::FieldDescriptor::CPPTYPE_INT64:
        reflection->SetInt64(message, field, 1'700'000'000'000 + event);
        break;
      case pb::FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(message, field, true);
        break;
      default:
        Fill(reflection->MutableMessage(message, field), event);
    }
  }
}

struct Setup {
  Setup(int fields, bool json, const std::string& operation) {
    const auto folder = std::filesystem::temp_directory_path();
    const auto set = Descriptors(fields);
    const std::string descriptors = folder / fmt::format("lockstep_bench_{}.pb", ::getpid());
    const std::string yaml = folder / fmt::format("lockstep_bench_{}.yaml", ::getpid());
    std::ofstream(descriptors, std::ios::binary) << set.SerializeAsString();
    std::ofstream(yaml) << Yaml(fields, descriptors, operation);
    auto loaded = LoadGroup(yaml);
    if (!loaded.ok()) throw std::runtime_error(std::string(MessageOf(loaded.status())));
    group = *std::move(loaded);
    std::filesystem::remove(descriptors);
    std::filesystem::remove(yaml);

    pb::DescriptorPool pool;
    pool.BuildFile(set.file(0));
    pb::DynamicMessageFactory factory(&pool);
    const auto* type = pool.FindMessageTypeByName("bench.Thing");
    for (int i = 0; i < kBatch; ++i) {
      std::unique_ptr<pb::Message> message(factory.GetPrototype(type)->New());
      Fill(message.get(), i);
      Event event;
      event.event_type = "Thing";
      event.version = 1;
      if (json) {
        event.content_type = "application/json";
        pb::util::JsonPrintOptions options;
        options.preserve_proto_field_names = true;
        if (!pb::util::MessageToJsonString(*message, &event.payload, options).ok()) std::abort();
      } else {
        event.content_type = "application/protobuf";
        event.payload = message->SerializeAsString();
      }
      bytes += static_cast<int64_t>(event.payload.size());
      events.push_back(std::move(event));
    }
  }

  GroupDeclaration group;
  std::vector<Event> events;
  int64_t bytes = 0;
};

void DecodeMapFold(benchmark::State& state, int fields, bool json) {
  const Setup setup(fields, json, "replace");
  const GroupProjector& projector = *setup.group.projector;
  const Table& table = projector.plan().tables[0];
  for (auto _ : state) {
    std::vector<std::unique_ptr<Change>> changes;
    std::vector<Step> steps;
    for (uint32_t i = 0; i < setup.events.size(); ++i) {
      auto change = projector.Map(setup.events[i]);
      if (!change.ok()) {
        state.SkipWithError("a mapping failed");
        return;
      }
      const auto& mapped = static_cast<const MappedChange&>(**change);
      steps.push_back({&mapped, &mapped.rows[0], i});
      changes.push_back(*std::move(change));
    }
    for (const RowSteps& row : GroupByRow(table, steps, false)) {
      benchmark::DoNotOptimize(Fold(table, row.steps));
    }
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
  state.SetBytesProcessed(state.iterations() * setup.bytes);
  state.counters["time/event"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kBatch,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["bytes/event"] = static_cast<double>(setup.bytes) / kBatch;
}

BENCHMARK_CAPTURE(DecodeMapFold, small_8_fields_protobuf, 8, false);
BENCHMARK_CAPTURE(DecodeMapFold, small_8_fields_json, 8, true);
BENCHMARK_CAPTURE(DecodeMapFold, large_60_fields_nested_protobuf, 60, false);
BENCHMARK_CAPTURE(DecodeMapFold, large_60_fields_nested_json, 60, true);

}  // namespace
}  // namespace lockstep::projections

int main(int argc, char** argv) {
  // --json, as every benchmark here takes it.
  std::vector<char*> arguments(argv, argv + argc);
  char json[] = "--benchmark_format=json";
  for (char*& argument : arguments) {
    if (std::string_view(argument) == "--json") argument = json;
  }
  benchmark::Initialize(&argc, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(argc, arguments.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
