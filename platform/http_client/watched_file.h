#pragma once

#include <sys/stat.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::http {

// A small file, such as one with secrets, that is read again when it has changed. One that can't be
// read or makes no sense any longer is told in the log, and what it said before goes on counting.
// Safe from any thread.
template <typename Content>
class WatchedFile {
 public:
  using Parse = std::function<absl::StatusOr<Content>(const std::string& text)>;

  static absl::StatusOr<std::unique_ptr<WatchedFile>> Open(const std::string& path, Parse parse) {
    auto file = std::unique_ptr<WatchedFile>(new WatchedFile(path, std::move(parse)));
    file->look_ = file->Look();
    RETURN_IF_ERROR(file->Read());
    return file;
  }

  std::shared_ptr<const Content> Get() {
    const std::scoped_lock lock(mu_);
    const auto look = Look();
    if (look != look_) {
      look_ = look;
      if (const absl::Status read = Read(); !read.ok()) {
        log::Error("a file that changed can't be used; what it said before still counts",
                   {{"file", path_}, {"error", read}});
      }
    }
    return content_;
  }

 private:
  struct Seen {
    bool there = false;
    ino_t inode = 0;
    off_t size = 0;
    int64_t changed_ns = 0;
    friend bool operator==(const Seen&, const Seen&) = default;
  };

  WatchedFile(std::string path, Parse parse) : path_(std::move(path)), parse_(std::move(parse)) {}

  Seen Look() const {
    struct stat status {};
    if (stat(path_.c_str(), &status) != 0) return {};
    constexpr int64_t kNanos = 1'000'000'000;
    return {true, status.st_ino, status.st_size,
            status.st_mtim.tv_sec * kNanos + status.st_mtim.tv_nsec};
  }

  absl::Status Read() {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path_));
    auto parsed = parse_(text);
    if (!parsed.ok()) return InvalidArgument("{}: {}", path_, MessageOf(parsed.status()));
    content_ = std::make_shared<const Content>(*std::move(parsed));
    return absl::OkStatus();
  }

  const std::string path_;
  const Parse parse_;
  std::mutex mu_;
  Seen look_;
  std::shared_ptr<const Content> content_;
};

}  // namespace lockstep::http
