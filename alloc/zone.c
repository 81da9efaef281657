#include "alloc/zone.h"
