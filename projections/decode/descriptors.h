#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class Descriptor;
class DescriptorPool;
class DynamicMessageFactory;
class EnumDescriptor;
class FileDescriptor;
class Message;
}  // namespace google::protobuf

namespace lockstep::projections {

// The message types of one or more descriptor sets (`protoc --descriptor_set_out
// --include_imports`), and messages of them to parse into. Loading is not thread-safe; afterwards
// everything is.
class Descriptors {
 public:
  Descriptors();
  ~Descriptors();

  absl::Status LoadFile(const std::string& file);
  // The same of a set that is at hand; `file` names it in messages.
  absl::Status Load(const std::string& bytes, const std::string& file);

  bool empty() const { return files_.empty(); }
  // By full name; null when there is none.
  const google::protobuf::Descriptor* Find(const std::string& full_name) const;
  const google::protobuf::EnumDescriptor* FindEnum(const std::string& full_name) const;
  const std::vector<const google::protobuf::FileDescriptor*>& files() const { return files_; }
  // Every top-level message type, by full name, for suggestions.
  const std::vector<std::string>& names() const { return names_; }

  struct Return {
    const Descriptors* to = nullptr;  // null = not to be returned
    void operator()(google::protobuf::Message* message) const;
  };
  using Lease = std::unique_ptr<google::protobuf::Message, Return>;
  // A message to parse into, from a stock (parsing into a used message reuses its memory); returned
  // to the stock when the lease ends. Safe from any thread. `bytes`: how much will be parsed. A
  // giant's message is not kept: its memory would stay for good.
  Lease Take(const google::protobuf::Descriptor* type, size_t bytes) const;

 private:
  std::unique_ptr<google::protobuf::DescriptorPool> pool_;
  std::unique_ptr<google::protobuf::DynamicMessageFactory> factory_;
  std::vector<std::string> names_;
  std::vector<const google::protobuf::FileDescriptor*> files_;

  mutable std::mutex mu_;
  mutable std::unordered_map<const google::protobuf::Descriptor*,
                             std::vector<std::unique_ptr<google::protobuf::Message>>>
      stock_;
};

}  // namespace lockstep::projections
