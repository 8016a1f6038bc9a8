#include "train/sweep_sets.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/file.h"

namespace tessera::train {
namespace {

std::string setting(const char* key, const std::string& file) {
  return text(key, "=", toml_text(Value(file)));
}

// True if both lists of a benchmark split exist; throws if only one exists.
bool has_lists(const std::string& folder, const std::string& train, const std::string& held_out) {
  const bool first = file_exists(train), second = file_exists(held_out);
  if (first != second)
    fail_usage("'", folder, "' holds ", first ? train : held_out, " but not ", first ? held_out : train);
  return first;
}

template <class F>
void for_each_set(const Sweep& sweep, const F& f) {
  for (const SetGroup& group : sweep.groups)
    for (const std::string& set : group.sets) f(group.name, set);
}

SweepOptions options_for(const SweepOptions& options, const std::string& folder, bool has_final) {
  const SetData data = data_of_set(folder, has_final);
  SweepOptions own = options;  // the caller's settings follow, so they override the set's
  own.settings.insert(own.settings.begin(), data.settings.begin(), data.settings.end());
  own.final_settings.insert(own.final_settings.begin(), data.final_settings.begin(),
                            data.final_settings.end());
  return own;
}

SweepRow row_of(const std::vector<SweepRun>& runs, bool has_final) {
  const std::vector<SweepRow> rows = tabulate(runs);
  const auto last = std::find_if(rows.begin(), rows.end(), [](const SweepRow& row) { return row.final; });
  if (has_final) return last == rows.end() ? SweepRow() : *last;
  if (const SweepRow* best = best_of(rows)) return *best;
  SweepRow none;
  for (const SweepRow& row : rows) none.failed += row.failed;
  return none;
}

// Returns the error of the first failed run of a set without a result.
std::string failure_of(const std::vector<SweepRun>& runs, const SweepRow& row) {
  if (row.done > 0) return "";
  for (const SweepRun& run : runs)
    if (!run.failure.empty() && run.final == row.final) return run.failure;
  return "no run is done";
}

void write_tables(const std::string& directory, const std::vector<SetResult>& results) {
  std::string sets = "set,group,point,mean,deviation,runs,failed\n", groups = "group,sets,mean\n";
  for (const SetResult& result : results) {
    const SweepRow& row = result.row;
    sets +=
        text(result.set, ",", result.group, ",\"", row.point, "\",", row.done > 0 ? shortest(row.mean) : "",
             ",", row.done > 1 ? shortest(row.deviation) : "", ",", row.done, ",", row.failed, "\n");
  }
  for (const GroupMean& group : group_means(results))
    groups += text(group.name, ",", group.sets, ",", group.complete ? shortest(group.mean) : "", "\n");
  write_text_atomic(directory + "/sets.csv", sets);
  write_text_atomic(directory + "/groups.csv", groups);
}

}  // namespace

SetData data_of_set(const std::string& folder, bool has_final) {
  const std::string whole = folder + "/train1000", test = folder + "/test";
  const std::string train800 = folder + "/train800.txt", val200 = folder + "/val200.txt";
  SetData data;
  if (has_lists(folder, train800, val200))
    data.settings = {setting("data.path", train800), setting("data.val_path", val200)};
  else if (file_exists(whole))
    data.settings = {setting("data.path", whole)};
  else
    fail_usage("'", folder, "' must hold train800.txt and val200.txt, or a folder train1000");
  if (!has_final) return data;
  const std::string all = folder + "/train800val200.txt", test_list = folder + "/test.txt";
  if (has_lists(folder, all, test_list))
    data.final_settings = {setting("data.path", all), setting("data.val_path", test_list)};
  else if (file_exists(whole) && file_exists(test))
    data.final_settings = {setting("data.path", whole), setting("data.val_path", test)};
  else
    fail_usage("'", folder, "' must hold train800val200.txt and test.txt, or folders train1000 and test");
  return data;
}

std::vector<GroupMean> group_means(const std::vector<SetResult>& results) {
  std::vector<GroupMean> groups;
  const auto add = [&](const std::string& name, const SetResult& result) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.name == name; });
    if (group == groups.end()) group = groups.insert(group, {.name = name, .complete = true});
    ++group->sets;
    group->mean += result.row.mean;
    group->complete = group->complete && result.row.done > 0;
  };
  for (const SetResult& result : results) add(result.group, result);
  for (const SetResult& result : results) add("all", result);
  for (GroupMean& group : groups) group.mean /= static_cast<double>(group.sets);
  return groups;
}

void check_sets(const Sweep& sweep, const std::string& folder, const std::string& directory,
                const SweepOptions& options) {
  if (sweep.groups.empty())
    fail_usage("the sweep has no [sets]: which folders under '", folder, "' are sets");
  for_each_set(sweep, [&](const std::string& group, const std::string& set) {
    const std::string place = folder + "/" + set;
    if (!file_exists(place)) fail("'", place, "' does not exist, [sets] names it in ", group);
    check_sweep(sweep, directory + "/" + set, options_for(options, place, sweep.has_final));
  });
}

std::vector<SetResult> run_sets(const Sweep& sweep, const std::string& folder, const std::string& directory,
                                const SweepOptions& options, const SetStarting& starting) {
  check_sets(sweep, folder, directory, options);
  make_directories(directory);
  int64_t count = 0;
  for_each_set(sweep, [&](const auto&, const auto&) { ++count; });
  std::vector<SetResult> results;
  for_each_set(sweep, [&](const std::string& group, const std::string& set) {
    if (starting) starting(set, std::ssize(results) + 1, count);
    SetResult result{.set = set, .group = group, .failure = ""};
    try {
      const auto runs =
          run_sweep(sweep, directory + "/" + set, options_for(options, folder + "/" + set, sweep.has_final));
      result.row = row_of(runs, sweep.has_final);
      result.failure = failure_of(runs, result.row);
    } catch (const Error& error) {
      if (error.kind == ErrorKind::interrupted) throw;
      result.failure = error.what();
    }
    results.push_back(result);
    write_tables(directory, results);
  });
  return results;
}

}  // namespace tessera::train
