#include "emulator/wire/names.h"

#include <algorithm>
#include <random>

#include "platform/status.h"

namespace lockstep::emulator {
namespace {

constexpr std::string_view kProjects = "projects/";

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool HasOnlyLettersDigitsAnd(std::string_view others, std::string_view text) {
  return std::all_of(text.begin(), text.end(), [others](char c) {
    return IsLetter(c) || (c >= '0' && c <= '9') || others.find(c) != std::string_view::npos;
  });
}

// Project ids, also of the old kind with a domain ("example.com:shop").
bool IsProject(std::string_view project) {
  return !project.empty() && project.size() <= 100 && HasOnlyLettersDigitsAnd("-_.:", project);
}

bool IsId(std::string_view id) {
  return id.size() >= 3 && id.size() <= 255 && IsLetter(id.front()) && !id.starts_with("goog") &&
         HasOnlyLettersDigitsAnd("-_.~+%", id);
}

}  // namespace

absl::StatusOr<ResourceName> ResourceName::Parse(std::string_view name,
                                                 std::string_view collection) {
  const std::string middle = fmt::format("/{}/", collection);
  const size_t end = std::min(name.find(middle, kProjects.size()), name.size());
  const std::string_view project = name.substr(0, end);
  const std::string_view id = name.substr(std::min(end + middle.size(), name.size()));
  if (!CheckProject(project).ok() || !IsId(id)) {
    return InvalidArgument(
        "Invalid [{0}] name: (name={1}). It must have the form projects/{{project}}/{0}/{{id}}; an "
        "id has 3 to 255 letters, digits and -_.~+%, begins with a letter and not with 'goog'.",
        collection, name);
  }
  return ResourceName{std::string(project.substr(kProjects.size())), std::string(id)};
}

absl::Status CheckProject(std::string_view name) {
  if (name.starts_with(kProjects) && IsProject(name.substr(kProjects.size()))) {
    return absl::OkStatus();
  }
  return InvalidArgument("Invalid project name: (name={}). It must have the form projects/{{id}}.",
                         name);
}

std::string AssignName(const ResourceName& beside, std::string_view collection) {
  std::random_device random;
  return fmt::format("projects/{}/{}/assigned-{:08x}{:08x}", beside.project, collection, random(),
                     random());
}

absl::Status CheckId(std::string_view id) {
  if (IsId(id)) return absl::OkStatus();
  return InvalidArgument("Invalid resource id: (id={}).", id);
}

absl::Status ResourceNotFound(std::string_view name) {
  return NotFound("Resource not found (resource={}).", name);
}

absl::Status ResourceExists(std::string_view name) {
  return MakeStatus(absl::StatusCode::kAlreadyExists,
                    "Resource already exists in the project (resource={}).", name);
}

}  // namespace lockstep::emulator
