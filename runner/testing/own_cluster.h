#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace lockstep::runner {

// A private cluster with its own port; gone with this object.
class Cluster {
 public:
  Cluster() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "lockstep-restore.XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    std::filesystem::permissions(dir_, std::filesystem::perms(0755));
    const std::string answer = Bash("postgres_start " + dir_ +
                                    " fsync=off wal_level=replica max_wal_senders=4 "
                                    "log_min_messages=fatal && echo $PG_URL $PG_PORT");
    admin_url_ = answer.substr(0, answer.find(' '));
    port_ = answer.substr(answer.find(' ') + 1);
    url_ = admin_url_.substr(0, admin_url_.rfind('/')) + "/feed";
    Admin("CREATE DATABASE feed");
  }
  ~Cluster() {
    Bash("pg_run $PG_BIN/pg_ctl -D " + dir_ + "/data -m immediate -w stop || true");
    std::filesystem::remove_all(dir_);
  }

  void Backup() {
    Bash("pg_run $PG_BIN/pg_basebackup -D " + dir_ + "/backup -d " + url_ + " -X stream -c fast");
  }
  // The backup in place of the cluster. With recovery it becomes a timeline of its own.
  void Restore(bool recovery) {
    std::string script = "pg_run $PG_BIN/pg_ctl -D " + dir_ + "/data -m immediate -w stop; cd " +
                         dir_ + "; mv data gone; mv backup data; ";
    if (recovery) {
      script +=
          "pg_run touch data/recovery.signal; printf \"restore_command = 'false'\\n"
          "recovery_target = 'immediate'\\nrecovery_target_action = 'promote'\\n\" | pg_run tee -a "
          "data/postgresql.conf >/dev/null; ";
    }
    Bash(script + "pg_run $PG_BIN/pg_ctl -D " + dir_ + "/data -l " + dir_ +
         "/postgres.log -o '-p " + port_ + "' -w -t 60 start");
  }
  void Dump() { Bash("$PG_BIN/pg_dump --no-owner -f " + dir_ + "/dump.sql " + url_); }
  // The dump in a new database of the same name. In one transaction, as a runner that waits for it
  // must find all or nothing.
  void RestoreDump() {
    Admin("DROP DATABASE feed WITH (FORCE)");
    Admin("CREATE DATABASE feed");
    Bash("$PG_BIN/psql -q -X -v ON_ERROR_STOP=1 -1 -o /dev/null -f " + dir_ + "/dump.sql " + url_);
  }
  const std::string& url() const { return url_; }
  const std::string& admin_url() const { return admin_url_; }

  // The last line that it prints.
  static std::string Bash(const std::string& script) {
    const std::string command = ". " LOCKSTEP_POSTGRES_LIB "; pg_bin; { " + script + "; } 2>&1";
    FILE* const pipe = popen(("bash -c '" + Escape(command) + "'").c_str(), "r");
    std::string text;
    std::array<char, 4096> buffer{};
    while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
    EXPECT_EQ(pclose(pipe), 0) << script << "\n" << text;
    if (!text.empty()) text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }

 private:
  static std::string Escape(const std::string& text) {
    std::string escaped;
    for (const char c : text) escaped += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return escaped;
  }

  void Admin(const std::string& sql) const {
    Bash("$PG_BIN/psql -q -X -v ON_ERROR_STOP=1 -c \"" + sql + "\" " + admin_url_);
  }

  std::string dir_, admin_url_, url_, port_;
};

}  // namespace lockstep::runner
