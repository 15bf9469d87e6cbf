#!/usr/bin/python3
"""A host that nobody can dial takes part over the links that it opens: it serves versions, and the others see it, also when
the host through which it joined is gone."""
from common import BUILD, KEEP, main, series

from fleet import POLICY, Fleet
from mesh import Host, Json, Lab
from procs import Failed


def state(asked: Host, of: Host) -> str:
    doc: Json = asked.health(POLICY)
    found = [h["state"] for r in doc["regions"] for i in r["islands"] for h in i["hosts"] if h["name"] == of.name]
    return str(found[0]) if found else "unknown"


def test() -> None:
    versions = series("lr1e-6/bf16", 2)
    with Lab(BUILD, ["eu", "us", "ap"], [POLICY], KEEP) as lab:
        fleet = Fleet(lab, {"us": 1, "ap": 1})
        open_host, behind = fleet.islands
        behind.set("network", control="0.0.0.0:*", bulk="0.0.0.0:*", control_any="", bulk_any="")
        fleet.start_mesh()
        fleet.publish(versions[0])
        for h in fleet.islands:
            fleet.start_engine(h)
        fleet.wait_served(0)
        fleet.publish(versions[1])
        fleet.wait_served(1)
        for asked in (fleet.trainer, open_host, behind):
            lab.wait(f"{asked.name} sees all hosts", 20, lambda: state(asked, behind) == state(asked, open_host) == "serving")
        print("a host that cannot be dialled serves what is published")

        fleet.trainer.kill()
        for _ in range(3):
            if state(open_host, behind) != "serving" or state(behind, open_host) != "serving":
                raise Failed(f"{open_host.name} and {behind.name} do not reach each other without {fleet.trainer.name}")
        print("it is reached without the host through which it joined")


if __name__ == "__main__":
    main(test)
