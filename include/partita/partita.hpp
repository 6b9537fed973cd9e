#pragma once

/// All that a program needs that declares a model and trains it: see README.md.
#include "partita/cli/main.hpp"
#include "partita/comm/threads.hpp"
#include "partita/model/builtin.hpp"
#include "partita/model/model.hpp"
#include "partita/strategies/plan.hpp"
#include "partita/train/trainer.hpp"
