#include "weights/base/name_table.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera::train {
namespace {

bool any_matches(const std::string& pattern, const std::vector<std::string>& names) {
  const NamePattern given(pattern);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return given.match(name).has_value(); });
}

// True if a name has a number other than 0 at {0}.
bool has_several(std::string pattern, const std::vector<std::string>& names) {
  pattern.replace(pattern.find("{0}"), 3, "{+1}");
  return any_matches(pattern, names);
}

}  // namespace

NameTable::NameTable(std::string program, std::string family, NameRows rows, const std::string& given)
    : program_(std::move(program)), family_(std::move(family)), rows_(std::move(rows)), given_(given) {
  for (const NameRow& row : rows_) patterns_.push_back({NamePattern(row.theirs), NamePattern(row.ours)});
}

bool NameTable::reads(const std::vector<std::string>& theirs) const {
  return given_.empty() || any_matches(given_, theirs);
}

bool NameTable::applies(size_t row, const std::vector<std::string>& theirs) const {
  return rows_[row].given.empty() || any_matches(rows_[row].given, theirs);
}

std::vector<std::vector<NamePlace>> NameTable::each(const std::vector<std::string>& theirs) const {
  std::vector<size_t> active;
  std::vector<int64_t> counts(rows_.size());
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (applies(row, theirs)) active.push_back(row);
    if (patterns_[row].theirs.counts_down())
      counts[row] = count_after(theirs, patterns_[row].theirs.beginning());
  }
  std::vector<std::vector<NamePlace>> all;
  for (const std::string& name : theirs) {
    std::vector<NamePlace>& places = all.emplace_back();
    const NameRow* first = nullptr;
    for (const size_t row : active) {
      if (first && rows_[row].theirs != first->theirs) continue;
      const auto captures = patterns_[row].theirs.match(name, counts[row]);
      if (!captures) continue;
      const NameRow& found = rows_[row];
      places.push_back({name, found.ours.empty() ? "" : patterns_[row].ours.fill(*captures), found.join, true,
                        found.older, patterns_[row].theirs.is_each()});
      if (found.join.theirs.whole()) break;
      first = &found;
    }
    if (places.empty()) places.push_back({name, name});
  }
  return all;
}

std::vector<NamePlace> NameTable::ours(const std::vector<std::string>& theirs) const {
  std::vector<NamePlace> places;
  for (const std::vector<NamePlace>& of_name : each(theirs))
    places.insert(places.end(), of_name.begin(), of_name.end());
  return places;
}

std::vector<NamePlace> NameTable::theirs(const std::vector<std::string>& ours) const {
  std::vector<size_t> active;
  std::vector<int64_t> counts(rows_.size());
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row].older || rows_[row].ours.empty()) continue;
    if (patterns_[row].ours.is_alone() && has_several(rows_[row].ours, ours)) continue;
    active.push_back(row);
    if (patterns_[row].theirs.counts_down()) counts[row] = count_after(ours, patterns_[row].ours.beginning());
  }
  std::vector<NamePlace> places;
  std::vector<std::pair<size_t, NamePlace>> repeated;  // with the index of its row
  std::vector<std::string> written;
  for (const std::string& name : ours) {
    const NameRow* first = nullptr;
    for (const size_t row : active) {
      if (first && rows_[row].ours != first->ours) continue;
      const auto captures = patterns_[row].ours.match(name);
      if (!captures) continue;
      const NameRow& found = rows_[row];
      NamePlace place{"", name, found.join, true, false, patterns_[row].theirs.is_each()};
      if (place.each) {
        repeated.emplace_back(row, place);
      } else {
        place.theirs = patterns_[row].theirs.fill(*captures, counts[row]);
        written.push_back(place.theirs);
        places.push_back(std::move(place));
      }
      first = &found;
      if (found.join.ours.whole()) break;
    }
    if (!first) places.push_back({name, name});
  }
  for (auto& [row, place] : repeated) {
    const NamePattern& pattern = patterns_[row].theirs;
    const auto captures = patterns_[row].ours.match(place.ours);
    for (int64_t each = 0, count = count_after(written, pattern.beginning()); each < count; ++each) {
      place.theirs = pattern.fill(*captures, 0, each);
      places.push_back(place);
    }
  }
  return places;
}

std::vector<std::string> NameTable::sample(bool several) const {
  std::vector<std::string> names;
  std::set<std::pair<std::string, int64_t>> seen;  // our name and the part
  std::set<std::string> written;
  for (size_t row = 0; row < rows_.size(); ++row) {
    const auto& [theirs, to] = patterns_[row];
    if (rows_[row].older || rows_[row].ours.empty() || (several && to.is_alone())) continue;
    for (int64_t i = 0; i < (several ? 3 : 1); ++i) {
      const NamePattern::Captures captures = theirs.sample(several ? i : 0);
      if (!seen.insert({to.fill(captures), rows_[row].join.ours.first}).second) continue;
      for (int64_t each = 0; each < (several && theirs.is_each() ? 3 : 1); ++each)
        if (const std::string name = theirs.fill(captures, several ? 3 : 1, each);
            written.insert(name).second)
          names.push_back(name);
    }
  }
  return names;
}

namespace {

// Adds a second place to a source. Rows that are only for reading give way to others.
void add_place(TensorSource& source, const NamePlace& place) {
  const auto same = std::ranges::find_if(source.parts, [&](const NamePlace& part) {
    return part.join.ours.first < place.join.ours.last && place.join.ours.first < part.join.ours.last;
  });
  if (same == source.parts.end())
    source.parts.push_back(place);
  else if (place.each)
    source.copies.push_back(place.theirs);
  else if (same->older && !place.older)
    source.parts = {place};
  else if (!place.older)
    fail("two of its tensors, ", printable(same->theirs), " and ", printable(place.theirs), ", are '",
         printable(place.ours), "' of the model");
}

// A bias of the keys does not change attention, so BEiT's files have only those of q and v. Other files also
// have k's.
bool lacks_only_key_bias(const TensorSource& source) {
  const std::vector<NamePlace>& parts = source.parts;
  const auto named = [&](const char* ending) { return parts[0].theirs.ends_with(ending); };
  return source.ours.ends_with(".qkv.bias") && parts.size() == 2 &&
         (named(".q_bias") || named(".attention.query.bias") || named(".attention.q_proj.bias")) &&
         parts[0].join.ours.of == 3 && parts[0].join.ours.last == 1 && parts[1].join.ours.first == 2;
}

void sort_parts(TensorSource& source) {
  std::ranges::sort(source.parts, {}, [](const NamePlace& part) { return part.join.ours.first; });
  if (lacks_only_key_bias(source)) return;
  int64_t next = 0;
  for (const NamePlace& part : source.parts)
    if (part.join.ours.first == next) next = part.join.ours.last;
  const int64_t of = source.parts.front().join.ours.of;
  if (next != of)
    fail("'", printable(source.ours), "' is made of ", of, " tensors, such as '",
         printable(source.parts.front().theirs), "', of which ", of - std::ssize(source.parts),
         " are missing");
}

}  // namespace

std::vector<TensorSource> sources_of(const std::vector<NamePlace>& places) {
  std::vector<TensorSource> sources;
  std::map<std::string, size_t> index;
  for (const NamePlace& place : places) {
    if (place.ours.empty()) continue;
    const auto [found, is_new] = index.try_emplace(place.ours, sources.size());
    if (is_new)
      sources.push_back({place.ours, {place}, {}});
    else
      add_place(sources[found->second], place);
  }
  for (TensorSource& source : sources) sort_parts(source);
  return sources;
}

NameRows below(const std::string& theirs, const std::string& ours, NameRows rows) {
  for (NameRow& row : rows) {
    row.theirs = theirs + row.theirs;
    if (!row.ours.empty()) row.ours = ours + row.ours;
    if (!row.given.empty()) row.given = theirs + row.given;
  }
  return rows;
}

NameRows older(NameRows rows) {
  for (NameRow& row : rows) row.older = true;
  return rows;
}

NameRows joined(std::initializer_list<NameRows> several) {
  NameRows all;
  for (const NameRows& rows : several) all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

NameRows thirds(const std::string& q, const std::string& k, const std::string& v, const std::string& ours) {
  return {{q, ours, part(0, 3)}, {k, ours, part(1, 3)}, {v, ours, part(2, 3)}};
}

}  // namespace tessera::train
