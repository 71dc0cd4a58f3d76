#include "emulator/store/sqlite.h"

#include <sqlite3.h>

#include <map>

#include "platform/status.h"

namespace lockstep::emulator {

struct Sqlite::Parts {
  sqlite3* database = nullptr;
  std::string file;
  std::map<const char*, std::unique_ptr<Statement>> statements;
};

Sqlite::Sqlite() : parts_(std::make_unique<Parts>()) {}

Sqlite::~Sqlite() {
  for (const auto& [sql, statement] : parts_->statements) sqlite3_finalize(statement->statement_);
  sqlite3_close(parts_->database);
}

absl::Status Sqlite::Failed() const {
  const int code = parts_->database == nullptr ? SQLITE_NOMEM : sqlite3_errcode(parts_->database);
  if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
    return FailedPrecondition(
        "another process has the state in {}: one emulator at a time may have it. End the other, "
        "or "
        "name another directory",
        parts_->file);
  }
  if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
    return FailedPrecondition(
        "{} is damaged, or was not written by lockstep-emulator ({}). Name another directory, or "
        "remove this one: what it holds is lost then",
        parts_->file, sqlite3_errmsg(parts_->database));
  }
  return Unavailable(
      "the state can't be kept in {}: {}", parts_->file,
      parts_->database == nullptr ? "out of memory" : sqlite3_errmsg(parts_->database));
}

absl::StatusOr<std::unique_ptr<Sqlite>> Sqlite::Open(const std::string& file) {
  std::unique_ptr<Sqlite> opened(new Sqlite);
  opened->parts_->file = file;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(file.c_str(), &opened->parts_->database, kFlags, nullptr) != SQLITE_OK) {
    return opened->Failed();
  }
  return opened;
}

absl::Status Sqlite::Execute(const char* sql) {
  const int code = sqlite3_exec(parts_->database, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Failed();
}

absl::StatusOr<Sqlite::Statement*> Sqlite::Prepare(const char* sql) {
  if (const auto known = parts_->statements.find(sql); known != parts_->statements.end()) {
    return known->second.get();
  }
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(parts_->database, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return Failed();
  return (parts_->statements[sql] = std::unique_ptr<Statement>(new Statement(this, statement)))
      .get();
}

Sqlite::Statement& Sqlite::Statement::Bind(std::string_view text) {
  sqlite3_bind_text64(statement_, ++bound_, text.data(), text.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
  return *this;
}

Sqlite::Statement& Sqlite::Statement::BindBytes(std::string_view bytes) {
  sqlite3_bind_blob64(statement_, ++bound_, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  return *this;
}

Sqlite::Statement& Sqlite::Statement::Bind(uint64_t number) {
  sqlite3_bind_int64(statement_, ++bound_, static_cast<sqlite3_int64>(number));
  return *this;
}

absl::Status Sqlite::Statement::Run() {
  const auto more = Next();
  if (more.ok() && *more) Reset();
  return more.status();
}

absl::StatusOr<bool> Sqlite::Statement::Next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : database_->Failed();
  Reset();
  if (!status.ok()) return status;
  return false;
}

void Sqlite::Statement::Reset() {
  sqlite3_reset(statement_);
  bound_ = 0;
}

uint64_t Sqlite::Statement::Number(int column) const {
  return static_cast<uint64_t>(sqlite3_column_int64(statement_, column));
}

std::string Sqlite::Statement::Bytes(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
  return bytes == nullptr ? std::string() : std::string(bytes, size);
}

}  // namespace lockstep::emulator
