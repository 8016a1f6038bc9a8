#include "parallel/meeting_place.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"
#include "parallel/traffic.h"

namespace tessera::parallel {
namespace {

using std::chrono::milliseconds;

constexpr double kStandardPatience = 600;  // seconds

milliseconds as_time(double seconds) { return milliseconds(static_cast<int64_t>(1000 * seconds)); }

std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

std::vector<uint8_t> value_of(const std::string& words) { return {words.begin(), words.end()}; }

bool is_taken(const std::string& message) {
  return message.find("EADDRINUSE") != std::string::npos ||
         message.find("already in use") != std::string::npos;
}

}  // namespace

double patience() {
  const char* asked = std::getenv("TESSERA_WAIT_SECONDS");
  if (!asked) return kStandardPatience;
  const auto seconds = parse_int(asked);
  if (!seconds || *seconds < 1 || *seconds > 1000000)
    fail_usage("TESSERA_WAIT_SECONDS is '", printable(asked, 40), "', must be 1 to 1000000 seconds");
  return static_cast<double>(*seconds);
}

MeetingPlace::MeetingPlace(Start start) : start_(std::move(start)) {
  const bool serve = start_.rank == 0 && !start_.served;
  if (!serve && !start_.port_file.empty()) find_port();
  whole_ = open(serve);
  if (serve && !start_.port_file.empty()) {
    start_.port = dynamic_cast<c10d::TCPStore&>(*whole_).getPort();
    write_text_atomic(start_.port_file, std::to_string(start_.port));
  }
  store_ = c10::make_intrusive<c10d::PrefixStore>(start_.prefix.empty() ? "tessera" : start_.prefix, whole_);
  if (store_->add("joined/" + std::to_string(start_.rank), 1) > 1)
    throw Lost(text("another process has rank ", start_.rank, " at ", start_.host, " port ", start_.port,
                    ": it is left of an earlier attempt, or two have the same rank"));
}

void MeetingPlace::find_port() {
  const double began = steady_seconds(), wait = patience();
  while (start_.port == 0) {
    if (std::filesystem::exists(start_.port_file))
      start_.port = parse_int(trim(read_text(start_.port_file, 64))).value_or(0);
    if (start_.port != 0) return;
    if (steady_seconds() - began > wait)
      fail("process ", start_.rank, " of ", start_.size, " has waited ", fixed(wait, 0),
           " s for the first process, which did not publish its port in '", start_.port_file, "'");
    std::this_thread::sleep_for(milliseconds(5));
  }
}

c10::intrusive_ptr<c10d::Store> MeetingPlace::open(bool serve) const {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(start_.port);  // 0: any free port
  options.isServer = serve;
  options.numWorkers = static_cast<size_t>(start_.size);
  options.waitWorkers = false;
  options.timeout = as_time(patience());
  try {
    return c10::make_intrusive<c10d::TCPStore>(start_.host, options);
  } catch (const std::exception& error) {
    const std::string why = error.what();
    if (serve && is_taken(why))
      fail_usage("port ", start_.port, " of this machine is in use: set MASTER_PORT to a free one");
    fail("process ", start_.rank, " of ", start_.size, " has waited ", fixed(patience(), 0),
         " s for the store at ", start_.host, " port ", start_.port, ", which ",
         start_.served ? "the launcher serves: " : "the first process serves: ", printable(first_line(why)));
  }
}

c10::intrusive_ptr<c10d::Store> MeetingPlace::connect() const {
  return c10::make_intrusive<c10d::PrefixStore>(start_.prefix.empty() ? "tessera" : start_.prefix,
                                                open(false));
}

c10::intrusive_ptr<c10d::Store> MeetingPlace::part(const std::string& name) const {
  return c10::make_intrusive<c10d::PrefixStore>(name, store_);
}

// Returns the line for an exchange that failed with `cause`: it names the processes without a key.
std::string MeetingPlace::why_incomplete(const std::vector<std::string>& keys,
                                         const std::string& cause) const {
  constexpr size_t kMostNamed = 10;
  std::vector<std::string> absent;
  try {
    for (size_t rank = 0; rank < keys.size(); ++rank)
      if (!store_->check({keys[rank]})) absent.push_back(std::to_string(rank));
  } catch (const std::exception&) {
    absent.clear();  // the store itself is lost
  }
  const std::string where = text(start_.host, " port ", start_.port);
  if (absent.empty()) return text("the store at ", where, " failed: ", printable(first_line(cause)));
  return text("process ", start_.rank, " of ", start_.size, " has waited ", fixed(patience(), 0), " s at ",
              where, " for ", absent.size() == 1 ? "process " : "processes ", some_of(absent, kMostNamed));
}

std::vector<std::string> MeetingPlace::exchange(const std::string& name, const std::string& mine) {
  const std::chrono::milliseconds limit = as_time(patience());
  std::vector<std::string> keys, out;
  for (int64_t rank = 0; rank < start_.size; ++rank) keys.push_back(text(name, "/", rank));
  try {
    store_->set(keys.at(static_cast<size_t>(start_.rank)), value_of(mine));
    store_->wait(keys, limit);
    for (const auto& bytes : store_->multiGet(keys)) out.emplace_back(bytes.begin(), bytes.end());
  } catch (const std::exception& error) {
    throw Lost(why_incomplete(keys, error.what()));
  }
  if (start_.rank == 0 && !start_.port_file.empty()) {
    std::error_code none;
    std::filesystem::remove(start_.port_file, none);
    start_.port_file.clear();
  }
  return out;
}

void MeetingPlace::leave() {
  // Each waits for all, and the process that serves the store waits until the others have seen it.
  const auto meet = [&](const std::string& name, bool wait) {
    if (store_->add(name, 1) == start_.size) store_->set(name + "/all", value_of("1"));
    if (wait) store_->wait({name + "/all"}, milliseconds(10000));
  };
  try {
    meet("left", true);
    meet("gone", start_.rank == 0);
  } catch (const std::exception&) {
    return;  // a process ended without leaving: its launcher reports it
  }
}

}  // namespace tessera::parallel
