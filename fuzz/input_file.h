#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep::fuzz {

// A file of this process in memory (/dev/shm where there is one), for what reads files. Its folder
// is its own, and goes with the process.
class InputFile {
 public:
  explicit InputFile(const std::string& name) {
    std::string folder = std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp";
    folder += "/lockstep_fuzz_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) std::abort();
    folder_ = folder;
    path_ = folder + "/" + name;
  }
  ~InputFile() { std::filesystem::remove_all(folder_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  void Write(std::string_view text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
  }
  const std::string& folder() const { return folder_; }
  const std::string& path() const { return path_; }

 private:
  std::string folder_;
  std::string path_;
};

}  // namespace lockstep::fuzz
