#pragma once

#include <limits>
#include <optional>
#include <string>

#include "projections/declare/message_scope.h"
#include "projections/declare/yaml_file.h"
#include "projections/plan/group_plan.h"

namespace lockstep::projections {

// Stands for the deleted_at cell of a handler until the number of value columns is known.
inline constexpr uint32_t kDeletedAtCell = std::numeric_limits<uint32_t>::max();

// `on_gap:` of a projection or a mapping: whether it parks. nullopt = not said.
std::optional<bool> ReadOnGap(YamlFile& file, const YAML::Node& node);

// Reads the mappings of one projection's events: an operation, its conditions, where its key and
// its columns come from. What is learnt of the table (columns, operations) is noted in it.
class HandlerReader {
 public:
  // REQUIRES: the table has its names and key columns; all outlive the reader. `key`: the
  // projection's `key:`. `on_gap`: what the projection says for all of them.
  HandlerReader(YamlFile& file, const GroupScope& scope, const YAML::Node& key,
                std::optional<bool> on_gap, GroupPlan* plan, Table* table);

  // Reads one mapping of the event type at `at`; nothing is added when it is wrong (reported).
  void Read(const std::string& type, const YAML::Node& at, const YAML::Node& node,
            EventMapping& mapping, Route* route);

  bool versioned() const { return versioned_; }  // some event replaces, merges or deletes

 private:
  bool ReadOperation(const std::string& type, const YAML::Node& node, Handler* handler,
                     YAML::Node* set);
  bool OperationNamed(const YAML::Node& at, const std::string& name, Operation* operation);
  void ReadSchemaVersions(const YAML::Node& node, Handler* handler);
  void NoteOperation(const YAML::Node& at, Operation operation);
  void ReadKey(const YAML::Node& at, const YAML::Node& node, const FieldScope& fields,
               Handler* handler);
  YAML::Node KeySource(const YAML::Node& own, size_t column) const;
  void CheckKeySource(const YAML::Node& at, const YAML::Node& source, const Column& column,
                      Operation operation);
  void ReadSet(const YAML::Node& set, const FieldScope& fields, Handler* handler);
  void ReadColumns(const YAML::Node& map, const FieldScope& fields, Handler* handler);
  void ReadColumn(const YAML::Node& at, const std::string& name, const YAML::Node& value,
                  const FieldScope& fields, Handler* handler);
  bool IsBookkeeping(const std::string& column, Operation operation) const;

  YamlFile& file_;
  const GroupScope& scope_;
  const YAML::Node key_;
  const std::optional<bool> on_gap_;
  GroupPlan& plan_;
  Table& table_;
  bool versioned_ = false;
};

}  // namespace lockstep::projections
