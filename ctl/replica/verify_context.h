#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/command/command.h"
#include "ctl/command/progress.h"
#include "ctl/group/runner_context.h"
#include "projections/declare/group_file.h"
#include "publisher/backfill/declaration.h"
#include "verify/exchange.h"
#include "verify/passage.h"
#include "verify/plan.h"
#include "verify/verify.h"

namespace lockstep::ctl {

// What `verify` and `repair` are told.
struct VerifyFlags {
  std::string declaration, source, source_password_file, group, group_file, projection, schema;
  std::string wait = "2m", grace = "5s";
  bool deep = false;
  int shown = 20;

  // Options of both commands.
  std::vector<Option> All();
  std::vector<Option> Files();       // those that `verify export` and `verify compare` have too
  std::vector<Option> Comparison();  // the others
  Option Declaration();
};

// What the tables of a command come to.
struct Tally {
  int64_t differences = 0;  // that were seen again
  size_t open_ranges = 0;   // whose rows are not known yet
  std::string unconfirmed;  // why some differences were seen once only; empty = there are none
  int64_t undecided = 0;    // rows that moved from look to look

  void Add(const verify::VerifyResult& result, size_t open_ranges = 0);
  bool equal() const {
    return differences == 0 && open_ranges == 0 && unconfirmed.empty() && undecided == 0;
  }
};

// The two sides, the tables that are compared, and how.
class VerifyContext {
 public:
  enum Sides { kBoth, kSource, kReplica };
  // REQUIRES: context and flags outlive it. Of one side alone, that is the database of --database.
  static absl::StatusOr<std::unique_ptr<VerifyContext>> Open(const Context& context,
                                                             const VerifyFlags& flags, Sides sides);

  const publisher::Declaration& declaration() const { return declaration_; }
  const std::vector<verify::VerifyTable>& tables() const { return tables_; }
  const std::string& group() const { return group_->name.value(); }
  postgres::Connection& source() { return *source_; }
  postgres::Connection& replica() { return *runner_.connection; }

  // Compares a table; with `keys` only these.
  absl::StatusOr<verify::VerifyResult> Run(const verify::VerifyTable& table,
                                           const std::vector<verify::RowKey>* keys,
                                           const std::stop_token& stop);
  // Compares all of them and prints each result, or answers it for --json.
  absl::StatusOr<Json> RunAll(const std::stop_token& stop, Tally* tally);
  // The way to the group; of a file, what its source had. It asks for what the source has committed
  // when it is called.
  absl::StatusOr<verify::Passage> MakePassage(
      const std::optional<verify::FileSource>& file = std::nullopt);

  // Another session at the source, for a repair: source() and replica() can't write.
  absl::StatusOr<std::unique_ptr<postgres::Connection>> ConnectToWrite() const;

  ProgressPrinter& printer() { return printer_; }

 private:
  VerifyContext(const Context& context, const VerifyFlags& flags)
      : context_(context), flags_(flags), printer_(context.json) {}
  absl::Status LoadGroup(const Context& context);
  absl::Status OpenReplica(const Context& context);
  absl::Status OpenSource(const Context& context);

  const Context& context_;
  const VerifyFlags& flags_;
  ProgressPrinter printer_;
  publisher::Declaration declaration_;
  std::shared_ptr<projections::GroupDeclaration> group_;
  std::vector<verify::VerifyTable> tables_;
  std::unique_ptr<postgres::Connection> source_;  // kBoth, kSource
  RunnerContext runner_;                          // its connection: kBoth, kReplica
};

// A table's result as --json has it, and as people read it.
Json ResultJson(const verify::VerifyTable& table, const verify::VerifyResult& result);
void PrintResult(const verify::VerifyTable& table, const verify::VerifyResult& result, int shown,
                 size_t open_ranges = 0);
int64_t Differences(const verify::VerifyResult& result);

// OK when all is equal; else a sentence: with 1 when rows differ or ranges are open, with 2 when
// whatever differs was seen once only, or rows moved from look to look.
absl::Status Verdict(const Tally& tally);

// A failure of `verify` ends with 2: 1 says that rows differ.
inline absl::Status Failed(const absl::Status& status) { return WithExit(2, status); }

}  // namespace lockstep::ctl
