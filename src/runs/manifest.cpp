#include "runs/manifest.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"

namespace tessera::train {
namespace {

constexpr int64_t kFormat = 2, kFormatBefore = 1;
// The digits of the checksum are between these two texts, at the end.
constexpr std::string_view kBeforeDigits = "\n \"xxh3\": \"", kBehindDigits = "\"\n}\n";
constexpr size_t kDigits = 16;

// True if the text ends with a checksum. Throws Error if that does not match.
bool is_sealed(std::string_view json, const std::string& where) {
  if (json.size() < kDigits + kBehindDigits.size() || !json.ends_with(kBehindDigits)) return false;
  const std::string_view covered = json.substr(0, json.size() - kDigits - kBehindDigits.size());
  if (!covered.ends_with(kBeforeDigits)) return false;
  if (checksum_of(as_bytes(covered)) != json.substr(covered.size(), kDigits))
    fail("'", where, "' is damaged: its checksum is not that of its text");
  return true;
}

const Value& field(const Value& table, const char* key, const std::string& where, bool (Value::*is)() const) {
  const Value* value = table.find(key);
  if (!value || !(value->*is)()) fail("'", where, "': no usable '", key, "'");
  return *value;
}

int64_t count(const Value& table, const char* key, const std::string& where) {
  const int64_t value = field(table, key, where, &Value::is_int).as_int();
  if (value < 0) fail("'", where, "': '", key, "' is ", value, ", must be at least 0");
  return value;
}

// A key that belongs to no format means damage.
void check_keys(const Value& table, const std::vector<std::string>& known, const std::string& where) {
  for (const auto& [key, value] : table.as_table())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail("'", where, "': unknown key '", printable(key), "'");
}

// A name from a manifest is appended to a path, so it must not leave the directory.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

ManifestFile read_file_entry(const Value& entry, const std::string& where) {
  ManifestFile file;
  file.name = field(entry, "name", where, &Value::is_string).as_string();
  if (!is_plain_name(file.name)) fail("'", where, "': '", printable(file.name), "' is not a file name");
  file.bytes = count(entry, "bytes", where);
  file.xxh3 = field(entry, "xxh3", where, &Value::is_string).as_string();
  check_keys(entry, {"name", "bytes", "xxh3"}, where);
  return file;
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  Value::Array files;
  for (const ManifestFile& file : manifest.files) {
    Value& entry = files.emplace_back();
    entry.set("name", file.name);
    entry.set("xxh3", file.xxh3);
    entry.set("bytes", file.bytes);
  }
  Value out;
  out.set("format", kFormat);
  out.set("step", manifest.step);
  out.set("files", files);
  out.set("state", manifest.state);
  out.set("xxh3", std::string(kDigits, '0'));
  std::string json = json_text(out, 1) + "\n";
  const size_t covered = json.size() - kBehindDigits.size() - kDigits;
  json.replace(covered, kDigits, checksum_of(as_bytes(json).first(covered)));
  return json;
}

Manifest parse_manifest(std::string_view json, const std::string& where) {
  const bool sealed = is_sealed(json, where);
  const Value table = parse_json_value(json, "'" + where + "'");
  const int64_t format = field(table, "format", where, &Value::is_int).as_int();
  if (format != kFormat && format != kFormatBefore)
    fail("'", where, "': format ", format, ", this program reads ", kFormatBefore, " and ", kFormat);
  if (format == kFormat && !sealed) fail("'", where, "' is damaged: it does not end with its checksum");
  check_keys(table,
             format == kFormat ? std::vector<std::string>{"format", "step", "files", "state", "xxh3"}
                               : std::vector<std::string>{"format", "step", "files", "state"},
             where);
  Manifest manifest{.step = count(table, "step", where),
                    .files = {},
                    .state = field(table, "state", where, &Value::is_table)};
  for (const Value& entry : field(table, "files", where, &Value::is_array).as_array()) {
    ManifestFile file = read_file_entry(entry, where);
    for (const ManifestFile& other : manifest.files)
      if (other.name == file.name) fail("'", where, "': '", printable(file.name), "' is listed twice");
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace tessera::train
