#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace lockstep::emulator {

// One SQLite database, as far as StateStore needs it. One thread at a time.
class Sqlite {
 public:
  // One statement, compiled once. Values are bound in order; it begins anew after each run.
  class Statement {
   public:
    Statement& Bind(std::string_view text);
    Statement& BindBytes(std::string_view bytes);
    Statement& Bind(uint64_t number);
    // To its end, without an answer.
    absl::Status Run();
    // Is there another row? At the end it begins anew.
    absl::StatusOr<bool> Next();
    uint64_t Number(int column) const;
    std::string Bytes(int column) const;

   private:
    friend class Sqlite;
    Statement(Sqlite* database, sqlite3_stmt* statement)
        : database_(database), statement_(statement) {}
    void Reset();

    Sqlite* database_;
    sqlite3_stmt* statement_;
    int bound_ = 0;
  };

  // `name` for messages.
  static absl::StatusOr<std::unique_ptr<Sqlite>> Open(const std::string& file);
  ~Sqlite();
  Sqlite(const Sqlite&) = delete;
  Sqlite& operator=(const Sqlite&) = delete;

  absl::Status Execute(const char* sql);
  // Lives as long as the database. `sql` is a literal: it is the statement's name.
  absl::StatusOr<Statement*> Prepare(const char* sql);
  // All of `body` or nothing.
  template <typename Body>
  absl::Status Transact(const Body& body) {
    absl::Status status = Execute("BEGIN IMMEDIATE");
    if (status.ok()) status = body();
    if (status.ok()) status = Execute("COMMIT");
    if (!status.ok()) (void)Execute("ROLLBACK");
    return status;
  }

 private:
  struct Parts;
  Sqlite();
  absl::Status Failed() const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::emulator
