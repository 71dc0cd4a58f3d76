#pragma once

#include <list>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::chaos {

// A port that stands before another one of this machine and passes its connections on, until it is
// told to do worse. Its address stays while the server behind it comes and goes.
//
// One thread moves all bytes; any thread may give orders. Ends with the object, which resets what
// is open.
class Gate {
 public:
  explicit Gate(int target_port);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  int port() const { return port_; }

  // Every open connection ends with a TCP reset, on both sides.
  void Reset();
  // Nothing moves and nobody is let in, and nobody is told, until Flow.
  void Stall();
  void Flow();
  // Whoever comes from now on is let in to this port.
  void Retarget(int target_port);

 private:
  struct Link {
    int client = -1;
    int server = -1;
    std::string up, down;  // on their way to the server and to the client
  };

  void Run();
  void Wake() const;
  void Let();  // the next one in
  // Moves what can be moved; false when the link is over.
  static bool Move(Link& link, short client_events, short server_events);
  static void Close(const Link& link, bool reset);

  int listening_ = -1;
  int wake_ = -1;
  int port_ = 0;
  std::list<Link> links_;  // of the thread
  std::thread thread_;

  std::mutex mu_;
  int target_;
  bool stalled_ = false;
  bool reset_ = false;
  bool stop_ = false;
};

}  // namespace lockstep::chaos
