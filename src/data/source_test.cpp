#include "data/source.h"
#include <gtest/gtest.h>
