#pragma once

#include <deque>
#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "platform/clock.h"
#include "tests/chaos/system/call_notes.h"

namespace lockstep::postgres {
class Connection;
}

namespace lockstep::chaos {

struct HttpConsumerOptions {
  int port = 0;
  std::string database;  // of the runners' state: asked about what comes again
  std::string group;
  std::string mood_file;  // a word: well, hang, 500, 503, 429, cut, refuse
  std::string notes_file;
  uint64_t seed = 1;
};

// The endpoint of an HTTP handler: writes down every request in the order of arrival, and its
// answer before it is given. It misbehaves as the mood file says, and answers 422 to events whose
// payload asks for it. One thread, which is the caller's of Run; Run ends when `stop` is set.
class HttpConsumer {
 public:
  explicit HttpConsumer(HttpConsumerOptions options);
  ~HttpConsumer();

  void Run(const volatile bool& stop);

 private:
  struct Pending {
    CallNote note;
    SteadyTime due;
    bool refuse = false;  // what the event asks for
  };
  struct Client {
    int socket = -1;
    pid_t runner = 0;
    std::string bytes;               // not yet a request
    std::optional<Pending> pending;  // being answered
    bool hangs = false;              // and never will be
    bool over = false;
  };

  void Listen();
  void LookAtMood();
  void ResetAll();
  void Accept();
  void Read(Client& client);
  // The next request that has come in full.
  void Take(Client& client);
  void Answer(Client& client);
  char AskInbox(const std::string& event_id);
  void Note(const std::string& line);

  const HttpConsumerOptions options_;
  std::mt19937_64 random_;
  int listening_ = -1;
  std::string mood_ = "well";
  SteadyTime next_look_;
  std::list<Client> clients_;
  std::set<std::string> accepted_;  // event ids
  int64_t calls_ = 0;
  int notes_ = -1;  // a file's descriptor
  std::unique_ptr<postgres::Connection> connection_;
  SteadyTime ask_again_;  // the database was away
};

}  // namespace lockstep::chaos
