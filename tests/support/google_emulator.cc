#include "tests/support/google_emulator.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "platform/status.h"
#include "tests/support/free_port.h"

namespace lockstep::testing {
namespace {

constexpr char kLibrary[] = "/usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib";

// A java process that ends with ours.
class JavaProcess {
 public:
  JavaProcess(const std::string& jar, int port) {
    const std::string port_flag = "--port=" + std::to_string(port);
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // also when we are killed
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execlp("java", "java", "-cp", jar.c_str(), "com.google.cloud.pubsub.testing.v1.Main",
           "--host=127.0.0.1", port_flag.c_str(), nullptr);
    _exit(127);
  }
  ~JavaProcess() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  JavaProcess(const JavaProcess&) = delete;
  JavaProcess& operator=(const JavaProcess&) = delete;

 private:
  pid_t pid_ = 0;
};

std::string FindJar() {
  const char* given = std::getenv("LOCKSTEP_GOOGLE_EMULATOR_JAR");
  if (given != nullptr) return given;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kLibrary, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("cloud-pubsub-emulator", 0) == 0 && entry.path().extension() == ".jar") {
      return entry.path().string();
    }
  }
  return "";
}

std::string RunningAddress() {
  std::string address;
  if (const char* given = std::getenv("LOCKSTEP_GOOGLE_EMULATOR")) address = given;
  if (const char* file = std::getenv("LOCKSTEP_GOOGLE_EMULATOR_FILE"); file && address.empty()) {
    std::ifstream stream(file);
    std::getline(stream, address);
  }
  return address;
}

absl::StatusOr<std::string> FindOrLaunch() {
  const std::string running = RunningAddress();
  if (!running.empty()) return running;
  const std::string jar = FindJar();
  if (jar.empty()) {
    return NotFound(
        "Google's emulator not found: install google-cloud-cli-pubsub-emulator, or set "
        "LOCKSTEP_GOOGLE_EMULATOR_JAR");
  }
  if (std::system("java -version >/dev/null 2>&1") != 0) {
    return NotFound("Google's emulator not found: it needs java, which is missing");
  }
  const int port = FreePort();
  static const JavaProcess process(jar, port);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!CanConnect(port)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return Unavailable("Google's emulator ({}) did not start", jar);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return "127.0.0.1:" + std::to_string(port);
}

}  // namespace

absl::StatusOr<std::string> GoogleEmulatorAddress() {
  static const absl::StatusOr<std::string> address = FindOrLaunch();
  return address;
}

}  // namespace lockstep::testing
