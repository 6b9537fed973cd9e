// What every test includes, parsed once a program. No source includes this file: each still names what it uses.
#include "src/pch.hpp"

#include <gtest/gtest.h>
