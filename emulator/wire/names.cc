#include "emulator/wire/names.h"

#include <algorithm>

#include "platform/status.h"

namespace lockstep::emulator {
namespace {

constexpr std::string_view kProjects = "projects/";

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsIdCharacter(char c) {
  return IsLetter(c) || IsDigit(c) || std::string_view("-_.~+%").find(c) != std::string_view::npos;
}

// Project ids, also of the old kind with a domain ("example.com:shop").
bool IsProject(std::string_view project) {
  return !project.empty() && project.size() <= 100 &&
         std::all_of(project.begin(), project.end(), [](char c) {
           return IsLetter(c) || IsDigit(c) ||
                  std::string_view("-_.:").find(c) != std::string_view::npos;
         });
}

bool IsId(std::string_view id) {
  return id.size() >= 3 && id.size() <= 255 && IsLetter(id.front()) && id.substr(0, 4) != "goog" &&
         std::all_of(id.begin(), id.end(), IsIdCharacter);
}

}  // namespace

absl::StatusOr<ResourceName> ResourceName::Parse(std::string_view name,
                                                 std::string_view collection) {
  const auto refuse = [&] {
    return InvalidArgument(
        "Invalid [{0}] name: (name={1}). It must have the form projects/{{project}}/{0}/{{id}}; an "
        "id has 3 to 255 letters, digits and -_.~+%, begins with a letter and not with 'goog'.",
        collection, name);
  };
  if (name.substr(0, kProjects.size()) != kProjects) return refuse();
  const std::string_view rest = name.substr(kProjects.size());
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return refuse();
  const std::string_view project = rest.substr(0, slash);
  const std::string_view tail = rest.substr(slash + 1);
  if (!IsProject(project) || tail.substr(0, collection.size()) != collection ||
      tail.size() <= collection.size() || tail[collection.size()] != '/') {
    return refuse();
  }
  const std::string_view id = tail.substr(collection.size() + 1);
  if (!IsId(id)) return refuse();
  return ResourceName{std::string(project), std::string(id)};
}

absl::Status CheckProject(std::string_view name) {
  if (name.substr(0, kProjects.size()) == kProjects && IsProject(name.substr(kProjects.size()))) {
    return absl::OkStatus();
  }
  return InvalidArgument("Invalid project name: (name={}). It must have the form projects/{{id}}.",
                         name);
}

absl::Status CheckId(std::string_view id) {
  if (IsId(id)) return absl::OkStatus();
  return InvalidArgument("Invalid resource id: (id={}).", id);
}

}  // namespace lockstep::emulator
