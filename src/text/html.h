// Character references of HTML 5 ("&amp;", "&#39;", "&#x27;"), as Python's html.unescape resolves them.
//
// The names come from `html_names.txt.gz` (tools/html_names), which is unpacked on first use.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tessera::tokens {

// Windows-1252 at 0x80 … 0x9F; its five unassigned places map to themselves.
inline constexpr std::array<char32_t, 32> kWindows1252 = {
    0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
    0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

// Resolves all references; keeps what is none. A name may lack its semicolon if HTML allows that, even if
// other letters follow.
std::u32string resolve_references(std::u32string_view text);

// Resolves only references that end in a semicolon, and names in capitals too ("&EACUTE;"), as ftfy does.
std::u32string resolve_closed_references(std::u32string_view text);

}  // namespace tessera::tokens
